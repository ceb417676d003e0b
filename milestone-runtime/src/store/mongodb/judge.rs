//! What became of a patch whose fate is not known, from what is read afterwards.

use super::read::Held;
use crate::store::Commit;

/// What became of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is stored.
    Done,
    /// The lease is another's, or the milestone is gone.
    Lost,
    /// It is not stored, and cannot be any more: more commands have come than it knows of.
    Mail,
    /// It is not stored, but a copy of it that is on its way might be.
    Open,
}

/// Judges by what holds now; `None`: there is no such document.
///
/// Under a token only its worker writes, and never two different patches for one `rev`. So `rev` + 1 under the token is this patch's
/// doing. Without a lease it is, too, if the patch gives the lease up: whoever else had moved `rev` on would have left a token there
/// first. Further on nobody can tell, and to have lost a milestone that one gives up harms nothing. A `rev` before the patch means that
/// the database has lost what it acknowledged.
pub(super) fn judge(commit: &Commit, now: Option<&Held>) -> Verdict {
    let Some(now) = now else { return Verdict::Lost };
    match &now.token {
        Some(token) if *token == commit.token && now.rev == commit.rev + 1 => Verdict::Done,
        Some(token) if *token == commit.token && now.rev == commit.rev => {
            if commit.patch.mail().is_some_and(|mail| mail != now.mail) {
                Verdict::Mail
            } else {
                Verdict::Open
            }
        }
        None if commit.patch.releases() && now.rev == commit.rev + 1 => Verdict::Done,
        _ => Verdict::Lost,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use milestone_core::patch::Patch;

    use super::*;

    fn commit(patch: Patch) -> Commit {
        Commit {
            id: "a".into(),
            token: "mine".to_owned(),
            rev: 5,
            patch: Arc::new(patch),
        }
    }

    fn now(token: Option<&str>, rev: i64) -> Held {
        Held {
            token: token.map(ToOwned::to_owned),
            until: None,
            rev,
            mail: 2,
        }
    }

    fn keeps(now: Option<&Held>) -> Verdict {
        judge(&commit(Patch::default()), now)
    }

    fn releases(now: Option<&Held>) -> Verdict {
        judge(
            &commit(Patch::for_tests(vec![], vec![], Some(2), true)),
            now,
        )
    }

    #[test]
    fn under_the_token_the_rev_tells() {
        for judged in [keeps, releases] {
            assert_eq!(judged(Some(&now(Some("mine"), 6))), Verdict::Done);
            assert_eq!(judged(Some(&now(Some("mine"), 7))), Verdict::Lost);
            assert_eq!(judged(Some(&now(Some("mine"), 5))), Verdict::Open);
            assert_eq!(judged(Some(&now(Some("mine"), 4))), Verdict::Lost);
        }
    }

    #[test]
    fn another_token_is_lost_whatever_the_rev() {
        for rev in 4..8 {
            assert_eq!(keeps(Some(&now(Some("another"), rev))), Verdict::Lost);
            assert_eq!(releases(Some(&now(Some("another"), rev))), Verdict::Lost);
        }
    }

    #[test]
    fn without_a_lease_only_a_patch_that_gives_it_up_is_done() {
        assert_eq!(releases(Some(&now(None, 6))), Verdict::Done);
        assert_eq!(keeps(Some(&now(None, 6))), Verdict::Lost);
        // Another may have taken it at 5, left it at 6 and ended it at 7.
        assert_eq!(releases(Some(&now(None, 7))), Verdict::Lost);
        assert_eq!(releases(Some(&now(None, 5))), Verdict::Lost);
    }

    #[test]
    fn mail_counts_only_for_a_patch_that_guards_against_it_and_is_not_stored() {
        let guarded = commit(Patch::for_tests(vec![], vec![], Some(1), false));
        assert_eq!(judge(&guarded, Some(&now(Some("mine"), 5))), Verdict::Mail);
        assert_eq!(judge(&guarded, Some(&now(Some("mine"), 6))), Verdict::Done);
        assert_eq!(
            judge(&guarded, Some(&now(Some("another"), 5))),
            Verdict::Lost
        );
        assert_eq!(keeps(Some(&now(Some("mine"), 5))), Verdict::Open);
    }

    #[test]
    fn a_milestone_that_is_gone_is_lost() {
        assert_eq!(keeps(None), Verdict::Lost);
        assert_eq!(releases(None), Verdict::Lost);
    }
}
