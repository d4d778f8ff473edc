//! Messages between stages, placed from the orders alone: a forward is preceded by the receipt of its activation and
//! followed by its sending, a backward likewise with gradients. Where a stage sends to and receives from one neighbour
//! between the same two tasks, and so does the neighbour, the two messages are one exchange: a send that completes only
//! with its receive would otherwise stop both.

use meshwright_algebra::schedules::Task;
use std::collections::BTreeSet;

/// What travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parcel {
    /// The activation of a micro-batch, to the next stage.
    Activation(u32),
    /// Its gradient, to the previous one.
    Gradient(u32),
}

/// One exchange with a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Offset of the neighbour in stages.
    pub peer: i32,
    /// Sent, if anything.
    pub send: Option<Parcel>,
    /// Received, if anything.
    pub receive: Option<Parcel>,
}

/// A task or a message, in listing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A pass of a micro-batch.
    Task(Task),
    /// An exchange.
    Message(Message),
}

/// The listing of every stage.
pub fn items(orders: &[Vec<Task>]) -> Vec<Vec<Item>> {
    let stages = orders.len();
    let candidates: Vec<BTreeSet<(i32, Parcel, Parcel)>> = (0..stages)
        .map(|s| {
            let gaps = orders[s].windows(2).filter_map(|w| {
                let (to, sent) = departure(w[0], s, stages)?;
                let (from, received) = arrival(w[1], s, stages)?;
                (to == from).then_some((to, sent, received))
            });
            gaps.collect()
        })
        .collect();
    let joined = |s: usize, peer: i32, sent: Parcel, received: Parcel| {
        let other = (s as i32 + peer) as usize;
        candidates[s].contains(&(peer, sent, received))
            && candidates[other].contains(&(-peer, received, sent))
    };
    (0..stages)
        .map(|s| {
            let mut items = Vec::new();
            let mut previous: Option<Task> = None;
            for task in orders[s].iter().map(Some).chain([None]) {
                let out = previous.and_then(|t| departure(t, s, stages));
                let into = task.and_then(|t| arrival(*t, s, stages));
                match (out, into) {
                    (Some((to, sent)), Some((from, received)))
                        if to == from && joined(s, to, sent, received) =>
                    {
                        items.push(Item::Message(Message {
                            peer: to,
                            send: Some(sent),
                            receive: Some(received),
                        }));
                    }
                    _ => {
                        items.extend(
                            out.map(|(peer, p)| {
                                Item::Message(Message { peer, send: Some(p), receive: None })
                            }),
                        );
                        items.extend(
                            into.map(|(peer, p)| {
                                Item::Message(Message { peer, send: None, receive: Some(p) })
                            }),
                        );
                    }
                }
                items.extend(task.map(|t| Item::Task(*t)));
                previous = task.copied();
            }
            items
        })
        .collect()
}

/// Where a task's result goes.
fn departure(task: Task, stage: usize, stages: usize) -> Option<(i32, Parcel)> {
    match task {
        Task::F(k) => (stage + 1 < stages).then_some((1, Parcel::Activation(k))),
        Task::B(k) => (stage > 0).then_some((-1, Parcel::Gradient(k))),
    }
}

/// Where a task's operand comes from.
fn arrival(task: Task, stage: usize, stages: usize) -> Option<(i32, Parcel)> {
    match task {
        Task::F(k) => (stage > 0).then_some((-1, Parcel::Activation(k))),
        Task::B(k) => (stage + 1 < stages).then_some((1, Parcel::Gradient(k))),
    }
}
