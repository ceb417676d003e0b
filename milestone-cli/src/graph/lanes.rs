//! A graph as lines: one node a line, its edges as lanes beside it.
//!
//! An edge runs down its lane until the node that it leads to. All edges that wait for one node share a lane, so a graph is as wide as
//! the number of nodes that are waited for at once.

/// One line of a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// What stands before the node's symbol; of a line without a node, all of it.
    pub(crate) before: String,
    /// The node.
    pub(crate) node: Option<usize>,
    /// What stands behind the symbol.
    pub(crate) behind: String,
}

/// Draws a graph, given what each node comes after; nothing if it is wider than so many lanes. Each node stands behind those that it comes
/// after.
pub(crate) fn draw(after: &[Vec<usize>], widest: usize) -> Option<Vec<Line>> {
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); after.len()];
    for (node, after) in after.iter().enumerate() {
        for before in after {
            followers[*before].push(node);
        }
    }
    let mut open: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut drawn = vec![false; after.len()];
    let mut lanes = Lanes::default();
    let mut drawing = Vec::new();
    let mut ended = None;
    while let Some((node, column)) = next(&lanes, &open, &drawn) {
        if after[node].is_empty() && ended == Some(column) {
            // Right below an end it would seem to come after it.
            drawing.push(lanes.gap());
        }
        drawn[node] = true;
        lanes.set(column, Some(node));
        drawing.push(lanes.node(column, node));
        for follower in &followers[node] {
            open[*follower] -= 1;
        }
        drawing.extend(lanes.leave(column, &followers[node]));
        ended = followers[node].is_empty().then_some(column);
        if lanes.0.len() > widest {
            return None;
        }
    }
    Some(drawing)
}

/// The node to draw next, with its column: the leftmost of those whose turn it is, so that a branch is drawn to its end.
fn next(lanes: &Lanes, open: &[usize], drawn: &[bool]) -> Option<(usize, usize)> {
    let waiting = lanes.0.iter().enumerate();
    let ready = waiting
        .filter_map(|(column, node)| Some(((*node)?, column)))
        .find(|(node, _)| open[*node] == 0);
    ready.or_else(|| {
        let root = (0..open.len()).find(|node| !drawn[*node] && open[*node] == 0)?;
        Some((root, lanes.free(0)))
    })
}

/// The node that each lane leads to.
#[derive(Default)]
struct Lanes(Vec<Option<usize>>);

impl Lanes {
    fn set(&mut self, column: usize, node: Option<usize>) {
        if column >= self.0.len() {
            self.0.resize(column + 1, None);
        }
        self.0[column] = node;
        while self.0.last() == Some(&None) {
            self.0.pop();
        }
    }

    fn get(&self, column: usize) -> Option<usize> {
        self.0.get(column).copied().flatten()
    }

    fn find(&self, node: usize) -> Option<usize> {
        self.0.iter().position(|lane| *lane == Some(node))
    }

    /// The first column from there on that has no lane.
    fn free(&self, from: usize) -> usize {
        (from..self.0.len())
            .find(|column| self.get(*column).is_none())
            .unwrap_or(from.max(self.0.len()))
    }

    /// The line of a node.
    fn node(&self, column: usize, node: usize) -> Line {
        let lane = |column: usize| {
            if self.get(column).is_some() {
                "│ "
            } else {
                "  "
            }
        };
        let behind: String = (column + 1..self.0.len()).map(lane).collect();
        Line {
            before: (0..column).map(lane).collect(),
            node: Some(node),
            behind: behind.trim_end().to_owned(),
        }
    }

    /// A line without a node.
    fn gap(&self) -> Line {
        let lane = |lane: &Option<usize>| if lane.is_some() { "│ " } else { "  " };
        let before: String = self.0.iter().map(lane).collect();
        Line {
            before: before.trim_end().to_owned(),
            node: None,
            behind: String::new(),
        }
    }

    /// Leads from the node in a column to those that come after it, and draws that if it is more than going on downwards.
    fn leave(&mut self, column: usize, followers: &[usize]) -> Option<Line> {
        let mut joined = Vec::new();
        let mut begun = Vec::new();
        self.set(column, None);
        for follower in followers {
            if let Some(lane) = self.find(*follower) {
                joined.push(lane);
            } else {
                let lane = self.free(column);
                self.set(lane, Some(*follower));
                begun.push(lane);
            }
        }
        let goes_on = begun.first() == Some(&column);
        if joined.is_empty() && begun.len() <= usize::from(goes_on) {
            return None;
        }
        let targets = || joined.iter().chain(&begun).copied();
        let (left, right) = targets().fold((column, column), |(left, right), target| {
            (left.min(target), right.max(target))
        });
        let mut text = String::new();
        for at in 0..self.0.len().max(right + 1) {
            let within = left <= at && at <= right;
            let lane = self.get(at).is_some();
            text.push(if at == column {
                corner((true, goes_on, left < at, at < right))
            } else if within && targets().any(|target| target == at) {
                corner((joined.contains(&at), true, left < at, at < right))
            } else if lane {
                '│'
            } else if within {
                '─'
            } else {
                ' '
            });
            text.push(if within && at < right { '─' } else { ' ' });
        }
        Some(Line {
            before: text.trim_end().to_owned(),
            node: None,
            behind: String::new(),
        })
    }
}

/// The sign that is open to these sides: up, down, left, right.
const fn corner(sides: (bool, bool, bool, bool)) -> char {
    match sides {
        (true, true, true, true) => '┼',
        (true, true, true, false) => '┤',
        (true, true, false, true) => '├',
        (true, false, true, true) => '┴',
        (false, true, true, true) => '┬',
        (true, false, true, false) => '╯',
        (true, false, false, true) => '╰',
        (false, true, true, false) => '╮',
        (false, true, false, true) => '╭',
        (_, _, false, false) => '│',
        (false, false, _, _) => '─',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drawing, with each node as its letter.
    fn drawn(after: &[&[usize]]) -> String {
        let after: Vec<Vec<usize>> = after.iter().map(|after| after.to_vec()).collect();
        let lines = draw(&after, 100).unwrap();
        let nodes: Vec<usize> = lines.iter().filter_map(|line| line.node).collect();
        for (place, node) in nodes.iter().enumerate() {
            assert!(
                after[*node]
                    .iter()
                    .all(|before| nodes[..place].contains(before))
            );
        }
        assert_eq!(nodes.len(), after.len());
        let letter = |node: usize| char::from(b'a' + u8::try_from(node).unwrap());
        let text = |line: &Line| {
            let node = line.node.map(|node| letter(node).to_string());
            let text = format!(
                "{}{} {}",
                line.before,
                node.unwrap_or_default(),
                line.behind
            );
            text.trim_end().to_owned()
        };
        lines.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_chain_is_straight() {
        insta::assert_snapshot!(drawn(&[&[], &[0], &[1]]), @r"
        a
        b
        c
        ");
    }

    #[test]
    fn a_group_opens_and_closes() {
        // a -> (b, c -> d) -> e
        insta::assert_snapshot!(drawn(&[&[], &[0], &[0], &[2], &[1, 3]]), @r"
        a
        ├─╮
        b │
        │ c
        │ d
        ├─╯
        e
        ");
        // a -> (b, c, d) -> e
        insta::assert_snapshot!(drawn(&[&[], &[0], &[0], &[0], &[1, 2, 3]]), @r"
        a
        ├─┬─╮
        b │ │
        │ c │
        ├─╯ │
        │   d
        ├───╯
        e
        ");
    }

    #[test]
    fn several_roots_and_several_ends() {
        // (a, b) -> c -> (d, e)
        insta::assert_snapshot!(drawn(&[&[], &[], &[0, 1], &[2], &[2]]), @r"
        a
        │ b
        ├─╯
        c
        ├─╮
        d │
          e
        ");
        // a; b
        insta::assert_snapshot!(drawn(&[&[], &[]]), @r"
        a

        b
        ");
    }

    #[test]
    fn edges_that_cross_pass_behind() {
        // a -> (c, d); b -> (c, d); d -> e; a -> e
        insta::assert_snapshot!(drawn(&[&[], &[], &[0, 1], &[0, 1], &[3, 0]]), @r"
        a
        ├─┬─╮
        │ │ │ b
        ├─┼─│─╯
        c │ │
          d │
          ╰─┤
            e
        ");
        // a -> (b, c, d); b -> (e, f); c -> (e, f); d -> f
        insta::assert_snapshot!(drawn(&[&[], &[0], &[0], &[0], &[1, 2], &[1, 2, 3]]), @r"
        a
        ├─┬─╮
        b │ │
        ├─│─│─╮
        │ c │ │
        ├─┴─│─┤
        e   │ │
            d │
            ╰─┤
              f
        ");
    }

    #[test]
    fn groups_in_groups() {
        // a -> (b -> (c, d) -> e, f) -> g
        insta::assert_snapshot!(drawn(&[&[], &[0], &[1], &[1], &[2, 3], &[0], &[4, 5]]), @r"
        a
        ├─╮
        b │
        ├─│─╮
        c │ │
        │ f │
        │ │ d
        ├─│─╯
        e │
        ╰─┤
          g
        ");
    }

    #[test]
    fn what_is_too_wide_is_not_drawn() {
        let mut after: Vec<Vec<usize>> = vec![vec![]];
        after.extend((0..20).map(|_| vec![0]));
        assert_eq!(draw(&after, 12), None);
    }
}
