//! Communicators between threads: every operation against its plain definition, long mixed sequences, and
//! failures that must wake everybody and be reported once.

use std::time::Duration;

use meshwright_executor::comm::threads::{End, Member, group, link};
use meshwright_executor::comm::{CommError, Communicator, Link, Poison, Reduce};

use crate::support::numbers;

/// Runs `work` on every rank of a group of `n` threads; results in rank order.
fn on_ranks<T: Send>(n: usize, poison: &Poison, work: impl Fn(Member) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let ranks: Vec<_> = group(n, poison).into_iter().map(|m| scope.spawn(move || work(m))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The buffer of one rank in one round.
fn buffer(rank: usize, round: usize, len: usize) -> Vec<f32> {
    numbers(len, 1 + (rank * 1000 + round) as u64)
}

fn reduced(n: usize, round: usize, len: usize, op: Reduce) -> Vec<f32> {
    let combine = |a: f32, b: f32| if op == Reduce::Sum { a + b } else { a.max(b) };
    (1..n).fold(buffer(0, round, len), |all, rank| {
        all.iter().zip(buffer(rank, round, len)).map(|(a, b)| combine(*a, b)).collect()
    })
}

/// One operation, chosen by the round, against its definition, bit for bit.
fn operate(member: &dyn Communicator, round: usize, len: usize) {
    let (n, rank) = (member.size(), member.rank());
    match round % 6 {
        kind @ (0 | 1) => {
            let op = [Reduce::Sum, Reduce::Max][kind];
            let mut whole = buffer(rank, round, len);
            member.all_reduce(&mut whole, op).unwrap();
            assert_eq!(whole, reduced(n, round, len, op));
        }
        2 => {
            let mut whole = vec![9.0; n * len];
            member.all_gather(&buffer(rank, round, len), &mut whole).unwrap();
            let expected: Vec<f32> = (0..n).flat_map(|peer| buffer(peer, round, len)).collect();
            assert_eq!(whole, expected);
        }
        3 => {
            let mut part = vec![9.0; len];
            member.reduce_scatter(&buffer(rank, round, n * len), &mut part).unwrap();
            assert_eq!(part, reduced(n, round, n * len, Reduce::Sum)[rank * len..(rank + 1) * len]);
        }
        4 => {
            let mut receive = vec![9.0; n * len];
            member.all_to_all(&buffer(rank, round, n * len), &mut receive).unwrap();
            let share = |peer| buffer(peer, round, n * len)[rank * len..(rank + 1) * len].to_vec();
            assert_eq!(receive, (0..n).flat_map(share).collect::<Vec<_>>());
        }
        _ => {
            let root = round / 6 % n;
            let mut whole = buffer(rank, round, len);
            member.broadcast(&mut whole, root).unwrap();
            assert_eq!(whole, buffer(root, round, len));
        }
    }
}

#[test]
fn every_operation_on_one_to_five_ranks() {
    for n in 1..=5 {
        for len in [0, 1, 2, 7, 1001, 5003] {
            on_ranks(n, &Poison::new(), |member| (0..6).for_each(|round| operate(&member, round, len)));
        }
    }
}

#[test]
fn a_thousand_mixed_rounds() {
    on_ranks(4, &Poison::new(), |member| {
        (0..1000).for_each(|round| operate(&member, round * 7 % 1000, round % 13));
    });
}

#[test]
fn a_failure_wakes_everyone_and_is_told_once() {
    let poison = Poison::new();
    let (first, _peer) = link(&poison);
    let told = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || first.exchange(Some(&[1.0]), None));
        let told = on_ranks(4, &poison, |member| {
            if member.rank() == 2 {
                std::thread::sleep(Duration::from_millis(20));
                return poison.guard("rank 2", || panic!("device {} fell off", 7)).unwrap_err();
            }
            member.all_reduce(&mut [1.0; 5], Reduce::Sum).unwrap_err()
        });
        [told, vec![waiting.join().unwrap().unwrap_err()]].concat()
    });
    let cause = "rank 2 panicked: device 7 fell off";
    let mut expected = vec![CommError::Poisoned { cause: cause.into() }; 5];
    expected[2] = CommError::Panicked { message: "device 7 fell off".into() };
    assert_eq!(told, expected);
    assert!(!poison.tell("a later failure"));
    assert_eq!(poison.cause().as_deref(), Some(cause));
}

#[test]
fn after_a_failure_calls_return_at_once() {
    let poison = Poison::new();
    poison.tell("first");
    let told = on_ranks(2, &poison, |member| member.broadcast(&mut [0.0], 0).unwrap_err());
    assert_eq!(told, vec![CommError::Poisoned { cause: "first".into() }; 2]);
}

/// The errors of all ranks, and how many are a rank's own: the others have been told by it.
fn errors(n: usize, work: impl Fn(&Member) -> Result<(), CommError> + Sync) -> (usize, Vec<CommError>) {
    let told = on_ranks(n, &Poison::new(), |member| work(&member).unwrap_err());
    let own = told.iter().filter(|error| !matches!(error, CommError::Poisoned { .. })).count();
    (own, told)
}

#[test]
fn differing_sizes_are_reported() {
    let (own, told) = errors(3, |m| m.all_reduce(&mut vec![0.0; 4 + m.rank() / 2], Reduce::Sum));
    assert_eq!(own, 1);
    assert!(told.iter().all(|error| error.to_string().contains("all_reduce on rank")), "{told:?}");

    let (own, told) = errors(3, |m| m.all_gather(&[0.0; 2], &mut vec![0.0; 6 + m.rank() / 2]));
    assert_eq!(own, 1);
    let expected = CommError::SizeMismatch { call: "all_gather", rank: 2, expected: 6, actual: 7 };
    assert_eq!(told[2], expected);
}

#[test]
fn differing_calls_are_reported() {
    let (own, told) = errors(2, |m| match m.rank() {
        0 => m.all_reduce(&mut [0.0; 4], Reduce::Sum),
        _ => m.broadcast(&mut [0.0; 4], 0),
    });
    assert_eq!(own, 1);
    assert!(told[0].to_string().contains("is in"), "{told:?}");
}

/// Runs two ends of a link on two threads.
fn on_ends<T: Send>(a: impl FnOnce(End) -> T + Send, b: impl FnOnce(End) -> T + Send) -> (T, T) {
    let (left, right) = link(&Poison::new());
    std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(move || a(left)), scope.spawn(move || b(right)));
        (a.join().unwrap(), b.join().unwrap())
    })
}

#[test]
fn an_exchange_meets_an_exchange_or_a_send_and_a_receive() {
    let (there, back) = (numbers(1001, 1), numbers(17, 2));
    for _ in 0..200 {
        on_ends(
            |left| {
                let mut got = vec![9.0; 17];
                left.exchange(Some(&there), Some(&mut got)).unwrap();
                assert_eq!(got, back);
                got.fill(9.0);
                left.exchange(Some(&there), Some(&mut got)).unwrap();
                assert_eq!(got, back);
            },
            |right| {
                let mut got = vec![9.0; 1001];
                right.exchange(Some(&back), Some(&mut got)).unwrap();
                assert_eq!(got, there);
                got.fill(9.0);
                right.exchange(None, Some(&mut got)).unwrap();
                right.exchange(Some(&back), None).unwrap();
                assert_eq!(got, there);
            },
        );
    }
}

#[test]
fn a_send_ends_only_when_it_is_received() {
    let received = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    on_ends(
        |left| {
            left.exchange(Some(&[1.0]), None).unwrap();
            assert!(received.load(order));
        },
        |right| {
            std::thread::sleep(Duration::from_millis(20));
            received.store(true, order);
            right.exchange(None, Some(&mut [0.0])).unwrap();
        },
    );
}

#[test]
fn a_message_of_another_length_is_reported_on_both_ends() {
    let (sent, received) = on_ends(
        |left| left.exchange(Some(&[1.0; 3]), None).unwrap_err(),
        |right| right.exchange(None, Some(&mut [0.0; 4])).unwrap_err(),
    );
    assert_eq!(received, CommError::SizeMismatch { call: "receive", rank: 1, expected: 3, actual: 4 });
    assert_eq!(sent, CommError::Poisoned { cause: received.to_string().into() });
}
