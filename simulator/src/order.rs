//! A rank's instructions in order of time, without sorting: times never fall along a stream, so a merge of streams does.

use meshwright_ir::program::Code;

/// Instructions of each stream, in listing order.
pub(crate) struct Lanes(Vec<Vec<u32>>);

impl Lanes {
    pub(crate) fn of(code: &Code, streams: usize) -> Self {
        let mut lanes = vec![Vec::new(); streams];
        for (k, instruction) in code.instructions.iter().enumerate() {
            lanes[instruction.stream as usize].push(k as u32);
        }
        lanes.retain(|lane| !lane.is_empty());
        Self(lanes)
    }
}

/// Yields `(time, instruction)`, ascending.
pub(crate) struct Order<'a> {
    time: &'a [u64],
    /// Next of each stream, and those after it.
    heads: Vec<((u64, u32), &'a [u32])>,
    /// Whose turn it is, and up to where.
    turn: usize,
    limit: (u64, u32),
}

impl<'a> Order<'a> {
    /// Times by instruction.
    pub(crate) fn new(lanes: &'a Lanes, time: &'a [u64]) -> Self {
        let head = |lane: &'a Vec<u32>| ((time[lane[0] as usize], lane[0]), &lane[1..]);
        let mut order = Self { time, heads: lanes.0.iter().map(head).collect(), turn: 0, limit: (0, 0) };
        order.choose();
        order
    }

    /// Gives the turn to the least head, until the next least.
    fn choose(&mut self) {
        let (mut least, mut limit) = ((u64::MAX, u32::MAX), (u64::MAX, u32::MAX));
        for (lane, (head, _)) in self.heads.iter().enumerate() {
            if *head < least {
                (limit, least, self.turn) = (least, *head, lane);
            } else {
                limit = limit.min(*head);
            }
        }
        self.limit = limit;
    }
}

impl Iterator for Order<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let (head, rest) = self.heads.get_mut(self.turn)?;
        let now = *head;
        match rest.split_first() {
            Some((k, others)) => (*head, *rest) = ((self.time[*k as usize], *k), others),
            None => {
                self.heads.swap_remove(self.turn);
                self.choose();
                return Some(now);
            }
        }
        if *head > self.limit {
            self.choose();
        }
        Some(now)
    }
}
