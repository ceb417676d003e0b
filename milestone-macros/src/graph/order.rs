//! The order of a graph's nodes, and what is in the way of one.

use std::collections::BTreeSet;

/// An order in which every edge points forward; among the nodes that could come next, the one written first does. `None` if there
/// is a cycle.
pub(super) fn topological(count: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let edges: BTreeSet<(usize, usize)> = edges.iter().copied().collect();
    let mut waits = vec![0_usize; count];
    for (_, to) in &edges {
        waits[*to] += 1;
    }
    let mut free: BTreeSet<usize> = (0..count).filter(|node| waits[*node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = free.pop_first() {
        order.push(node);
        for (_, to) in edges.range((node, 0)..=(node, usize::MAX)) {
            waits[*to] -= 1;
            if waits[*to] == 0 {
                free.insert(*to);
            }
        }
    }
    (order.len() == count).then_some(order)
}

/// The edges of a cycle, as indices, each beginning where the one before it ends; empty if there is none.
pub(super) fn cycle(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut done = vec![false; count];
    for start in 0..count {
        let mut path: Vec<usize> = Vec::new();
        // Each node on the way with the first of its edges that was not tried yet.
        let mut stack = vec![(start, 0)];
        while let Some((node, next)) = stack.pop() {
            let Some(edge) = (next..edges.len())
                .find(|edge| edges[*edge].0 == node)
                .filter(|_| !done[node])
            else {
                done[node] = true;
                path.pop();
                continue;
            };
            stack.push((node, edge + 1));
            let to = edges[edge].1;
            if let Some(place) = stack.iter().position(|(node, _)| *node == to) {
                path.push(edge);
                return path.split_off(place);
            }
            if !done[to] {
                path.push(edge);
                stack.push((to, 0));
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_first_comes_first() {
        assert_eq!(
            topological(4, &[(0, 3), (3, 1), (0, 2)]),
            Some(vec![0, 2, 3, 1])
        );
        assert_eq!(topological(2, &[(1, 0), (1, 0)]), Some(vec![1, 0]));
    }

    #[test]
    fn a_cycle_is_found_behind_dead_ends() {
        let edges = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 5), (5, 3), (4, 2)];
        assert_eq!(topological(6, &edges), None);
        assert_eq!(cycle(6, &edges), [3, 4, 5]);
        assert_eq!(cycle(2, &[(0, 1), (1, 1)]), [1]);
        assert!(cycle(3, &[(0, 1), (1, 2), (0, 2)]).is_empty());
    }
}
