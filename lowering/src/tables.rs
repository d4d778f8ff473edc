//! The program's interned tables while it is being written: each distinct kernel, collective, exchange and name once.

use meshwright_ir::program::{Collective, Exchange, Kernel, Stream};
use std::collections::BTreeMap;

/// Distinct items in order of first use.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    pub(crate) items: Vec<T>,
    known: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> Interned<T> {
    fn new() -> Self {
        Self { items: Vec::new(), known: BTreeMap::new() }
    }
    /// Position of the item, added if it is new.
    pub(crate) fn of(&mut self, item: T) -> u32 {
        if let Some(k) = self.known.get(&item) {
            return *k;
        }
        let k = self.items.len() as u32;
        self.items.push(item.clone());
        self.known.insert(item, k);
        k
    }
}

pub(crate) struct Tables {
    pub(crate) streams: Vec<Stream>,
    pub(crate) kernels: Interned<Kernel>,
    pub(crate) collectives: Interned<Collective>,
    pub(crate) exchanges: Interned<Exchange>,
    pub(crate) names: Interned<String>,
}

impl Tables {
    pub(crate) fn new(streams: Vec<Stream>) -> Self {
        Self {
            streams,
            kernels: Interned::new(),
            collectives: Interned::new(),
            exchanges: Interned::new(),
            names: Interned::new(),
        }
    }
    /// Position of a stream that every plan of these axes has.
    pub(crate) fn stream(&self, stream: Stream) -> u8 {
        self.streams.iter().position(|s| *s == stream).expect("streams are listed from the mesh") as u8
    }
}
