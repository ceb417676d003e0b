//! A graph as const data: what `milestone!` writes, and the checks on it that run in the compiler.

use std::any::TypeId;

use super::MAX_ACTIONS;
use crate::options::Options;

/// What an action takes: one for each of its arguments.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input {
    /// The parameters of the milestone.
    Params,
    /// The output of an action that has run before.
    Output {
        /// Its durable name.
        method: &'static str,
    },
    /// The output of an action, if it is there.
    MaybeOutput {
        /// Its durable name.
        method: &'static str,
    },
    /// A value that the runtime was given.
    State {
        /// Its type.
        id: TypeId,
        /// Tells the name of its type.
        name: fn() -> &'static str,
    },
    /// What the runtime knows of the attempt.
    Context,
}

/// One action of a const graph. `T` is what a runtime attaches to it, such as the function to call.
#[derive(Clone, Copy, Debug)]
pub struct Node<T: 'static = ()> {
    /// The name in this graph: the action's own, or its alias.
    pub name: &'static str,
    /// The durable name of the action that runs here.
    pub method: &'static str,
    /// What the developer said about the action.
    pub options: Options,
    /// What it takes.
    pub inputs: &'static [Input],
    /// What the runtime attaches.
    pub payload: T,
}

/// A graph as const data: nodes, and edges as pairs of indices (before, after), the nodes in an order in which every edge
/// points forward and the edges sorted by their end.
#[derive(Clone, Copy, Debug)]
pub struct Graph<T: 'static = ()> {
    /// The actions.
    pub nodes: &'static [Node<T>],
    /// What runs before what.
    pub edges: &'static [(usize, usize)],
}

impl<T> Graph<T> {
    /// Checks in the compiler that every output which the node at `index` takes is there when it runs, and is one only.
    ///
    /// # Panics
    /// With the message that the compiler shows, if an output is missing or ambiguous.
    #[track_caller]
    pub const fn check_inputs(&self, index: usize) {
        let node = &self.nodes[index];
        let mut need = 0;
        while need < node.inputs.len() {
            if let Input::Output { method } = node.inputs[need] {
                self.check_input(index, method);
            }
            need += 1;
        }
    }

    #[track_caller]
    const fn check_input(&self, index: usize, method: &str) {
        let mut before = [false; MAX_ACTIONS];
        before[index] = true;
        let mut edge = self.edges.len();
        while edge > 0 {
            edge -= 1;
            let (from, to) = self.edges[edge];
            if before[to] {
                before[from] = true;
            }
        }
        let mut found: Option<usize> = None;
        let mut node = 0;
        while node < self.nodes.len() {
            if node != index && before[node] && same(self.nodes[node].method, method) {
                if let Some(first) = found {
                    let names = [self.nodes[first].name, self.nodes[node].name];
                    fail(&[
                        "`",
                        self.nodes[index].name,
                        "` takes `Output<",
                        method,
                        ">`, but `",
                        names[0],
                        "` and `",
                        names[1],
                        "` both run it before: only one of them may",
                    ]);
                }
                found = Some(node);
            }
            node += 1;
        }
        if found.is_none() {
            fail(&[
                "`",
                self.nodes[index].name,
                "` takes `Output<",
                method,
                ">`, but `",
                method,
                "` does not run before it: put `",
                method,
                " ->` in front of it",
            ]);
        }
    }
}

/// Whether the output of `method` is among the inputs, as one that must be there.
#[must_use]
pub const fn takes_output(inputs: &[Input], method: &str) -> bool {
    let mut input = 0;
    while input < inputs.len() {
        if let Input::Output { method: taken } = inputs[input]
            && same(taken, method)
        {
            return true;
        }
        input += 1;
    }
    false
}

/// Whether every output among the inputs is among the others, too.
#[must_use]
pub const fn takes_no_more(inputs: &[Input], others: &[Input]) -> bool {
    let mut input = 0;
    while input < inputs.len() {
        if let Input::Output { method } = inputs[input]
            && !takes_output(others, method)
        {
            return false;
        }
        input += 1;
    }
    true
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Panics with the parts joined; what does not fit is cut, at the boundary of a part.
#[track_caller]
const fn fail(parts: &[&str]) -> ! {
    let mut text = [0_u8; 1024];
    let mut len = 0;
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        if len + bytes.len() <= text.len() {
            let mut i = 0;
            while i < bytes.len() {
                text[len] = bytes[i];
                len += 1;
                i += 1;
            }
        }
        part += 1;
    }
    let (text, _) = text.split_at(len);
    match str::from_utf8(text) {
        Ok(text) => panic!("{}", text),
        Err(_) => panic!("an output is missing or ambiguous"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn node(name: &'static str, method: &'static str, inputs: &'static [Input]) -> Node {
        Node {
            name,
            method,
            options: Options::plain(),
            inputs,
            payload: (),
        }
    }

    const GRAPH: Graph = Graph {
        nodes: &[
            node("a", "a", &[]),
            node("b", "b", &[Input::Output { method: "a" }, Input::Context]),
            node("c", "b", &[Input::Output { method: "c" }]),
            node("d", "d", &[Input::Output { method: "b" }]),
        ],
        edges: &[(0, 1), (0, 2), (1, 3), (2, 3)],
    };

    const _: () = GRAPH.check_inputs(1);

    #[test]
    #[should_panic(expected = "`c` takes `Output<c>`, but `c` does not run before it")]
    fn an_output_that_is_not_there() {
        GRAPH.check_inputs(2);
    }

    #[test]
    #[should_panic(expected = "`d` takes `Output<b>`, but `b` and `c` both run it before")]
    fn an_output_that_two_give() {
        GRAPH.check_inputs(3);
    }
}
