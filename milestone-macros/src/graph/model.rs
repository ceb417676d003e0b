//! The nodes and edges that a graph stands for.

use std::collections::{BTreeSet, HashMap};

use proc_macro2::{Ident, Span};

use super::{
    order,
    syntax::{ActionPath, Chain, Mention, Step},
};
use crate::errors::Errors;

/// As many as a tuple may have that serde reads.
const MAX_ENDS: usize = 16;

/// As many as a plan may have.
const MAX_ACTIONS: usize = 4096;

#[derive(Clone)]
pub(crate) struct Node {
    /// Its name in the graph.
    pub(crate) name: String,
    pub(crate) path: ActionPath,
    /// Where errors about it point.
    pub(crate) ident: Ident,
}

/// A graph in order: all edges point forward and are sorted by their end.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<(usize, usize)>,
}

impl Model {
    /// The model of what could be read. After a cycle it has no edges.
    pub(crate) fn new(chains: &[Chain], errors: &mut Errors) -> Self {
        let mut reader = Reader {
            aliases: HashMap::new(),
            places: HashMap::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            errors,
        };
        for chain in chains {
            reader.aliases_of(chain);
        }
        for chain in chains {
            reader.chain(chain, &mut BTreeSet::new());
        }
        let Reader {
            nodes,
            edges,
            errors,
            ..
        } = reader;
        if let Some(node) = nodes.get(MAX_ACTIONS) {
            errors.push(
                &node.ident,
                format!(
                    "a graph has at most {MAX_ACTIONS} actions: split it into several milestones"
                ),
            );
        }
        let pairs: Vec<(usize, usize)> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
        let Some(order) = order::topological(nodes.len(), &pairs) else {
            say_cycle(&nodes, &edges, &pairs, errors);
            return Self {
                nodes,
                edges: Vec::new(),
            };
        };
        let mut place = vec![0; nodes.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        let mut edges: Vec<(usize, usize)> = pairs
            .iter()
            .map(|(from, to)| (place[*from], place[*to]))
            .collect();
        edges.sort_by_key(|(from, to)| (*to, *from));
        edges.dedup();
        let model = Self {
            nodes: order.into_iter().map(|old| nodes[old].clone()).collect(),
            edges,
        };
        if let Some(end) = model.ends().get(MAX_ENDS) {
            let message = format!(
                "a graph has at most {MAX_ENDS} last actions, since its outcome is a tuple of their outputs: put one more action behind them"
            );
            errors.push(&model.nodes[*end].ident, message);
        }
        model
    }

    /// The last actions, those that nothing waits for.
    pub(crate) fn ends(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|node| self.edges.iter().all(|(from, _)| from != node))
            .collect()
    }
}

struct Edge {
    from: usize,
    to: usize,
    /// Where its end is mentioned.
    at: Span,
}

struct Reader<'a> {
    /// What an alias stands for.
    aliases: HashMap<String, Mention>,
    places: HashMap<String, usize>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    errors: &'a mut Errors,
}

/// The first and the last actions of a step, with the places of the first ones.
type Ends = (Vec<(usize, Span)>, Vec<usize>);

impl Reader<'_> {
    fn aliases_of(&mut self, chain: &Chain) {
        for step in &chain.0 {
            match step {
                Step::Group(chains) => chains.iter().for_each(|chain| self.aliases_of(chain)),
                Step::Action(mention) if mention.alias.is_some() => {
                    self.aliases
                        .entry(mention.name())
                        .or_insert_with(|| mention.clone());
                }
                Step::Action(_) => {}
            }
        }
    }

    fn chain(&mut self, chain: &Chain, seen: &mut BTreeSet<String>) -> Ends {
        let mut firsts = None;
        let mut before: Vec<usize> = Vec::new();
        for step in &chain.0 {
            let (starts, ends) = match step {
                Step::Action(mention) => match self.mention(mention, seen) {
                    Some(node) => (vec![(node, mention.span())], vec![node]),
                    None => continue,
                },
                Step::Group(chains) => chains.iter().map(|chain| self.chain(chain, seen)).fold(
                    (Vec::new(), Vec::new()),
                    |(mut starts, mut ends), (more_starts, more_ends)| {
                        starts.extend(more_starts);
                        ends.extend(more_ends);
                        (starts, ends)
                    },
                ),
            };
            if starts.is_empty() {
                continue;
            }
            for &from in &before {
                self.edges
                    .extend(starts.iter().map(|&(to, at)| Edge { from, to, at }));
            }
            firsts.get_or_insert(starts);
            before = ends;
        }
        (firsts.unwrap_or_default(), before)
    }

    /// The node of a mention; `None` if it stands twice in this chain.
    fn mention(&mut self, mention: &Mention, seen: &mut BTreeSet<String>) -> Option<usize> {
        let name = mention.name();
        if !seen.insert(name.clone()) {
            let path = &mention.path;
            let message = format!(
                "`{name}` stands twice in this chain: to run it twice, give one of them an alias, `again: {}`",
                path.text()
            );
            self.errors.push(mention.ident(), message);
            return None;
        }
        let target = self
            .aliases
            .get(&name)
            .filter(|_| mention.is_bare())
            .unwrap_or(mention)
            .clone();
        if let Some(&place) = self.places.get(&name) {
            let (first, this) = (self.nodes[place].path.text(), target.path.text());
            if first != this {
                let message = format!(
                    "`{name}` is `{first}` before, and `{this}` here: give one of them an alias, `other: {this}`"
                );
                self.errors.push(mention.ident(), message);
            }
            return Some(place);
        }
        self.places.insert(name.clone(), self.nodes.len());
        self.nodes.push(Node {
            name,
            ident: mention.ident().clone(),
            path: target.path,
        });
        Some(self.nodes.len() - 1)
    }
}

/// Spells a cycle, at the place where the last of its edges was written.
fn say_cycle(nodes: &[Node], edges: &[Edge], pairs: &[(usize, usize)], errors: &mut Errors) {
    let cycle = order::cycle(nodes.len(), pairs);
    let Some(last) = cycle.iter().copied().max() else {
        return;
    };
    let start = cycle
        .iter()
        .position(|edge| *edge == last)
        .unwrap_or_default();
    let mut names: Vec<&str> = vec![&nodes[edges[last].to].name];
    for step in 1..=cycle.len() {
        names.push(&nodes[edges[cycle[(start + step) % cycle.len()]].to].name);
    }
    let message = format!(
        "a cycle, so that none of it could ever begin: {}",
        names.join(" -> ")
    );
    errors.add(syn::Error::new(edges[last].at, message));
}
