//! Listings of tasks and messages. `a0>` leaves for the next stage and `>a0` arrives from the previous one; `<g0` leaves
//! for the previous stage and `g0<` arrives from the next one; joined by `+`, they are one exchange.

use crate::plans::{self, Shape};
use expect_test::{Expect, expect};
use meshwright_algebra::schedules::{Task, order};
use meshwright_ir::Schedule;
use meshwright_lowering::{Item, Message, Parcel, items, lower};

fn listing(schedule: Schedule, stages: u32, m: u32) -> Vec<Vec<Item>> {
    let orders: Vec<Vec<Task>> = (0..stages).map(|s| order(schedule, s, stages, m)).collect();
    items(&orders)
}

fn word(item: &Item) -> String {
    let name = |p: Parcel| match p {
        Parcel::Activation(k) => format!("a{k}"),
        Parcel::Gradient(k) => format!("g{k}"),
    };
    match item {
        Item::Task(task) => task.to_string(),
        Item::Message(Message { peer, send, receive }) => {
            let up = *peer > 0;
            let sent = send.map(|p| if up { format!("{}>", name(p)) } else { format!("<{}", name(p)) });
            let taken = receive.map(|p| if up { format!("{}<", name(p)) } else { format!(">{}", name(p)) });
            sent.into_iter().chain(taken).collect::<Vec<_>>().join("+")
        }
    }
}

fn check(schedule: Schedule, stages: u32, m: u32, expected: Expect) {
    let lines = listing(schedule, stages, m)
        .iter()
        .enumerate()
        .map(|(s, items)| format!("stage {s}: {}\n", items.iter().map(word).collect::<Vec<_>>().join(" ")))
        .collect::<String>();
    expected.assert_eq(&lines);
}

#[test]
fn golden_listings() {
    check(
        Schedule::OneForwardOneBackward,
        2,
        4,
        expect![[r#"
        stage 0: F0 a0> F1 a1>+g0< B0 F2 a2>+g1< B1 F3 a3>+g2< B2 g3< B3
        stage 1: >a0 F0 B0 <g0+>a1 F1 B1 <g1+>a2 F2 B2 <g2+>a3 F3 B3 <g3
    "#]],
    );
    check(
        Schedule::Gpipe,
        2,
        4,
        expect![[r#"
        stage 0: F0 a0> F1 a1> F2 a2> F3 a3> g0< B0 g1< B1 g2< B2 g3< B3
        stage 1: >a0 F0 >a1 F1 >a2 F2 >a3 F3 B0 <g0 B1 <g1 B2 <g2 B3 <g3
    "#]],
    );
    check(
        Schedule::OneForwardOneBackward,
        4,
        8,
        expect![[r#"
        stage 0: F0 a0> F1 a1> F2 a2> F3 a3>+g0< B0 F4 a4>+g1< B1 F5 a5>+g2< B2 F6 a6>+g3< B3 F7 a7>+g4< B4 g5< B5 g6< B6 g7< B7
        stage 1: >a0 F0 a0> >a1 F1 a1> >a2 F2 a2>+g0< B0 <g0+>a3 F3 a3>+g1< B1 <g1+>a4 F4 a4>+g2< B2 <g2+>a5 F5 a5>+g3< B3 <g3+>a6 F6 a6>+g4< B4 <g4+>a7 F7 a7>+g5< B5 <g5 g6< B6 <g6 g7< B7 <g7
        stage 2: >a0 F0 a0> >a1 F1 a1>+g0< B0 <g0+>a2 F2 a2>+g1< B1 <g1+>a3 F3 a3>+g2< B2 <g2+>a4 F4 a4>+g3< B3 <g3+>a5 F5 a5>+g4< B4 <g4+>a6 F6 a6>+g5< B5 <g5+>a7 F7 a7>+g6< B6 <g6 g7< B7 <g7
        stage 3: >a0 F0 B0 <g0+>a1 F1 B1 <g1+>a2 F2 B2 <g2+>a3 F3 B3 <g3+>a4 F4 B4 <g4+>a5 F5 B5 <g5+>a6 F6 B6 <g6+>a7 F7 B7 <g7
    "#]],
    );
    check(
        Schedule::Gpipe,
        4,
        8,
        expect![[r#"
        stage 0: F0 a0> F1 a1> F2 a2> F3 a3> F4 a4> F5 a5> F6 a6> F7 a7> g0< B0 g1< B1 g2< B2 g3< B3 g4< B4 g5< B5 g6< B6 g7< B7
        stage 1: >a0 F0 a0> >a1 F1 a1> >a2 F2 a2> >a3 F3 a3> >a4 F4 a4> >a5 F5 a5> >a6 F6 a6> >a7 F7 a7> g0< B0 <g0 g1< B1 <g1 g2< B2 <g2 g3< B3 <g3 g4< B4 <g4 g5< B5 <g5 g6< B6 <g6 g7< B7 <g7
        stage 2: >a0 F0 a0> >a1 F1 a1> >a2 F2 a2> >a3 F3 a3> >a4 F4 a4> >a5 F5 a5> >a6 F6 a6> >a7 F7 a7> g0< B0 <g0 g1< B1 <g1 g2< B2 <g2 g3< B3 <g3 g4< B4 <g4 g5< B5 <g5 g6< B6 <g6 g7< B7 <g7
        stage 3: >a0 F0 >a1 F1 >a2 F2 >a3 F3 >a4 F4 >a5 F5 >a6 F6 >a7 F7 B0 <g0 B1 <g1 B2 <g2 B3 <g3 B4 <g4 B5 <g5 B6 <g6 B7 <g7
    "#]],
    );
}

const SCHEDULES: [Schedule; 2] = [Schedule::Gpipe, Schedule::OneForwardOneBackward];

/// What one neighbour sends another, in order.
fn traffic(items: &[Item], peer: i32, pick: impl Fn(&Message) -> Option<Parcel>) -> Vec<Parcel> {
    let message = |i: &Item| match i {
        Item::Message(m) if m.peer == peer => pick(m),
        Item::Message(_) | Item::Task(_) => None,
    };
    items.iter().filter_map(message).collect()
}

#[test]
fn every_message_is_matched_and_in_time() {
    for (schedule, p, m) in
        SCHEDULES.into_iter().flat_map(|s| (1..7).flat_map(move |p| (1..13).map(move |m| (s, p, m))))
    {
        let stages = listing(schedule, p, m);
        for (s, pair) in stages.windows(2).enumerate() {
            let up = traffic(&pair[0], 1, |m| m.send);
            let down = traffic(&pair[1], -1, |m| m.send);
            assert_eq!(up, (0..m).map(Parcel::Activation).collect::<Vec<_>>(), "{schedule} {p} {m} {s}");
            assert_eq!(down, (0..m).map(Parcel::Gradient).collect::<Vec<_>>(), "{schedule} {p} {m} {s}");
            assert_eq!(up, traffic(&pair[1], -1, |m| m.receive));
            assert_eq!(down, traffic(&pair[0], 1, |m| m.receive));
        }
        for (s, items) in stages.iter().enumerate() {
            let at = |wanted: &dyn Fn(&Item) -> bool| items.iter().position(wanted).unwrap();
            let received = |p| at(&move |i| matches!(i, Item::Message(m) if m.receive == Some(p)));
            let sent = |p| at(&move |i| matches!(i, Item::Message(m) if m.send == Some(p)));
            let task = |t| at(&move |i| *i == Item::Task(t));
            for k in 0..m {
                let (first, last) = (s == 0, s as u32 + 1 == p);
                assert!(first || received(Parcel::Activation(k)) < task(Task::F(k)));
                assert!(last || task(Task::F(k)) < sent(Parcel::Activation(k)));
                assert!(last || received(Parcel::Gradient(k)) < task(Task::B(k)));
                assert!(first || task(Task::B(k)) < sent(Parcel::Gradient(k)));
            }
        }
    }
}

/// The checker's two regimes agree that every listing of the grid makes progress.
#[test]
fn every_listing_makes_progress() {
    for (schedule, pp, m) in
        SCHEDULES.into_iter().flat_map(|s| (1..7).flat_map(move |p| (1..13).map(move |m| (s, p, m))))
    {
        let shape = Shape {
            model: plans::gpt(4),
            dp: 1,
            fsdp: 1,
            tp: 1,
            pp,
            sp: false,
            micro_batch: 1,
            global_batch: m,
            sequence: 8,
            schedule,
        };
        let plan = plans::plan(&shape, &mut plans::megatron(false)).unwrap();
        let verdict = lower(&plan).unwrap().check();
        assert!(verdict.is_ok(), "{schedule} pp {pp} m {m}: {verdict:?}");
    }
}
