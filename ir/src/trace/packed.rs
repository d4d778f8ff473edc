//! Spans and memory as a trace file holds them: for each rank its number and one flat list, times as differences, so that
//! millions of spans take some twenty bytes each. Written as they come and never held as text. The invariant: what is
//! read is what was written; a list that does not come out even, or whose times cannot be counted, is refused.

use super::{MemoryPoint, Span};
use serde::de::Error;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One rank's list.
struct List<'a, T, const N: usize> {
    items: &'a [T],
    /// The numbers of an item, given the one before it.
    numbers: fn(Option<&T>, &T) -> [u64; N],
}

impl<T, const N: usize> Serialize for List<'_, T, N> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut list = s.serialize_seq(Some(N * self.items.len()))?;
        for (k, item) in self.items.iter().enumerate() {
            let before = k.checked_sub(1).map(|b| &self.items[b]);
            (self.numbers)(before, item).iter().try_for_each(|n| list.serialize_element(n))?;
        }
        list.end()
    }
}

fn write<S: Serializer, T, const N: usize>(
    items: &[T],
    rank: fn(&T) -> u32,
    numbers: fn(Option<&T>, &T) -> [u64; N],
    s: S,
) -> Result<S::Ok, S::Error> {
    let mut lists = s.serialize_seq(None)?;
    for items in items.chunk_by(|a, b| rank(a) == rank(b)) {
        lists.serialize_element(&(rank(&items[0]), List { items, numbers }))?;
    }
    lists.end()
}

/// `item` makes the next of a rank's items from its numbers, given the one before it; none when they cannot be.
fn read<'d, D: Deserializer<'d>, T, const N: usize>(
    item: fn(u32, Option<&T>, [u64; N]) -> Option<T>,
    d: D,
) -> Result<Vec<T>, D::Error> {
    let lists: Vec<(u32, Vec<u64>)> = Vec::deserialize(d)?;
    let mut items = Vec::with_capacity(lists.iter().map(|l| l.1.len() / N).sum());
    for (rank, numbers) in lists {
        let first = items.len();
        for chunk in numbers.chunks(N) {
            let before = items[first..].last();
            let next = <[u64; N]>::try_from(chunk).ok().and_then(|n| item(rank, before, n));
            items.push(next.ok_or_else(|| D::Error::custom(format!("the list of rank {rank} is broken")))?);
        }
    }
    Ok(items)
}

/// Of each rank `[instruction, start since the last, length, …]`.
pub(super) mod spans {
    use super::*;
    use crate::Time;

    pub(in super::super) fn serialize<S: Serializer>(spans: &[Span], s: S) -> Result<S::Ok, S::Error> {
        let numbers = |before: Option<&Span>, s: &Span| {
            let since = before.map_or(0, |b| b.start.get());
            // Spans out of order or that end before they start are no trace, and are refused when it is checked.
            [
                u64::from(s.instruction),
                s.start.get().wrapping_sub(since),
                s.end.get().wrapping_sub(s.start.get()),
            ]
        };
        write(spans, |s| s.rank, numbers, s)
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<Vec<Span>, D::Error> {
        let span = |rank: u32, before: Option<&Span>, [instruction, since, length]: [u64; 3]| {
            let start = before.map_or(0, |b| b.start.get()).checked_add(since)?;
            let (instruction, end) = (instruction.try_into().ok()?, start.checked_add(length)?);
            Some(Span { rank, instruction, start: Time(start), end: Time(end) })
        };
        read(span, d)
    }
}

/// Of each rank `[time since the last, bytes, …]`.
pub(super) mod memory {
    use super::*;
    use crate::{Bytes, Time};

    pub(in super::super) fn serialize<S: Serializer>(
        points: &[MemoryPoint],
        s: S,
    ) -> Result<S::Ok, S::Error> {
        let numbers = |before: Option<&MemoryPoint>, p: &MemoryPoint| {
            [p.time.get().wrapping_sub(before.map_or(0, |b| b.time.get())), p.bytes.get()]
        };
        write(points, |p| p.rank, numbers, s)
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(d: D) -> Result<Vec<MemoryPoint>, D::Error> {
        let point = |rank: u32, before: Option<&MemoryPoint>, [since, bytes]: [u64; 2]| {
            let time = before.map_or(0, |b| b.time.get()).checked_add(since)?;
            Some(MemoryPoint { rank, time: Time(time), bytes: Bytes(bytes) })
        };
        read(point, d)
    }
}
