//! The values of a block in its problem: who reads each, what converting it costs under every pair of ends, and where
//! that cost goes. One reader makes an edge; several make a node of their own, so that a copy is made once and gradients
//! that arrive alike are summed before they are converted. The invariant: time and kept bytes are those of the copies,
//! sums and conversions that `algebra::expand` lists for the value.

use crate::block::{Block, add};
use crate::pricing::Prices;
use crate::problem::{Edge, FORBIDDEN};
use meshwright_algebra::{ALIGNMENT, Converter, Expr, Slot, signature};
use meshwright_ir::program::{Kernel, Pass};
use meshwright_ir::{Layout, Op, Value};

/// A reader of a value: per strategy the layout it wants and the layout of the gradient it gives.
struct Reader {
    /// Node; `nodes.len()` for the block's output.
    node: usize,
    /// Distinct (wanted, given).
    sides: Vec<(Layout, Layout)>,
    /// Which of them each strategy has.
    side_of: Vec<usize>,
    gives: bool,
    keeps: bool,
}

/// One reader's part in a choice for a value.
struct Part<'a> {
    wanted: &'a Layout,
    given: &'a Layout,
    gives: bool,
    keeps: bool,
    is_output: bool,
}

impl Block<'_> {
    fn readers(&self, value: Value, live: &[bool]) -> Vec<Reader> {
        let class = self.spec.class;
        let reader = |(node, operand): (u32, u32)| {
            let (k, o) = (node as usize, operand as usize);
            let all: Vec<(Layout, Layout)> =
                self.layouts[k].iter().map(|l| (l.inputs[o].clone(), l.input_gradients[o].clone())).collect();
            let op = &class.nodes[k].op;
            Reader {
                node: k,
                gives: live[k],
                keeps: live[k] && reads_back(op, Slot::Input(o as u8)),
                ..distinct(all)
            }
        };
        let mut readers: Vec<Reader> = class.consumers(value).into_iter().map(reader).collect();
        let last = class.nodes.len() - 1;
        if value == Value::Node(last as u32) && !class.ends_in_loss() {
            let boundary = self.spec.boundary.clone();
            let side = distinct(vec![(boundary.clone(), boundary)]);
            readers.push(Reader { node: last + 1, gives: true, keeps: false, ..side });
        }
        readers
    }

    /// Prices a value's conversions: on its producer, on an edge, or on a node of its own.
    pub(crate) fn add_value(
        &mut self,
        value: Value,
        live: &[bool],
        prices: &Prices<'_>,
        converter: &mut Converter<'_>,
    ) {
        let readers = self.readers(value, live);
        let output = self.spec.class.nodes.len();
        let (producer, made, keeps) = match value {
            Value::Input => {
                (None, distinct(vec![(self.spec.boundary.clone(), self.spec.boundary.clone())]), false)
            }
            Value::Node(k) => {
                let all = &self.layouts[k as usize];
                let sides = all.iter().map(|l| (l.output.clone(), l.output_gradient.clone())).collect();
                let op = &self.spec.class.nodes[k as usize].op;
                (Some(k as usize), distinct(sides), live[k as usize] && reads_back(op, Slot::Output))
            }
        };
        let shape = self.shape(value);
        let mut cost = |made: &(Layout, Layout), parts: &[Part<'_>], keeps: bool| {
            self.value_cost(value, &shape, made, parts, keeps, prices, converter)
        };
        match (&readers[..], producer) {
            ([], _) => {}
            ([only], Some(p)) if only.node == output => {
                let costs: Vec<_> =
                    made.sides.iter().map(|m| cost(m, &[only.part(0, output)], keeps)).collect();
                for (s, side) in made.side_of.iter().enumerate() {
                    let (time, kept) = costs[*side];
                    self.time[p][s] = add(self.time[p][s], time);
                    self.kept[p][s] += kept;
                }
            }
            ([only], None) => {
                let costs: Vec<_> = (0..only.sides.len())
                    .map(|x| cost(&made.sides[0], &[only.part(x, output)], false))
                    .collect();
                for (s, side) in only.side_of.iter().enumerate() {
                    let (time, kept) = costs[*side];
                    self.time[only.node][s] = add(self.time[only.node][s], time);
                    self.kept[only.node][s] += kept;
                }
            }
            ([only], Some(p)) if !(keeps && only.keeps) => {
                let table: Vec<Vec<(u64, u64)>> = made
                    .sides
                    .iter()
                    .map(|m| (0..only.sides.len()).map(|x| cost(m, &[only.part(x, output)], keeps)).collect())
                    .collect();
                let cells = made.side_of.iter().flat_map(|m| only.side_of.iter().map(move |x| (*m, *x)));
                let matrix = cells.map(|(m, x)| table[m][x].0).collect();
                // What is kept depends on one end alone: the value itself on its producer, the copy on its reader.
                match keeps {
                    true => {
                        made.side_of.iter().enumerate().for_each(|(s, m)| self.kept[p][s] += table[*m][0].1)
                    }
                    false => {
                        let add = |(s, x): (usize, &usize)| self.kept[only.node][s] += table[0][*x].1;
                        only.side_of.iter().enumerate().for_each(add);
                    }
                }
                self.edges.push(Edge { from: p as u32, to: only.node as u32, cost: matrix });
            }
            (several, producer) => {
                let tuples = tuples(made.sides.len(), several);
                let costs: Vec<(u64, u64)> = tuples
                    .iter()
                    .map(|t| {
                        let parts: Vec<_> =
                            several.iter().zip(&t[1..]).map(|(r, side)| r.part(*side, output)).collect();
                        cost(&made.sides[t[0]], &parts, keeps)
                    })
                    .collect();
                let own = self.time.len() as u32;
                self.time.push(costs.iter().map(|c| c.0).collect());
                self.kept.push(costs.iter().map(|c| c.1).collect());
                let mut tie = |at: usize, node: usize, side_of: &[usize]| {
                    let agree = tuples.iter().flat_map(|t| side_of.iter().map(move |s| t[at] == *s));
                    let cost = agree.map(|yes| if yes { 0 } else { FORBIDDEN }).collect();
                    self.edges.push(Edge { from: own, to: node as u32, cost });
                };
                if let Some(p) = producer {
                    tie(0, p, &made.side_of);
                }
                for (r, reader) in several.iter().enumerate().filter(|(_, reader)| reader.node < output) {
                    tie(r + 1, reader.node, &reader.side_of);
                }
            }
        }
    }

    fn shape(&self, value: Value) -> Vec<u64> {
        match value {
            Value::Input => vec![self.spec.shapes.batch, self.spec.shapes.sequence, self.spec.hidden],
            Value::Node(k) => {
                let expr = Expr::of(&self.spec.class.nodes[k as usize].op);
                self.spec.shapes.shape(&expr, &expr.output)
            }
        }
    }

    /// Time of a value's copies, gradient sums and gradient conversions; bytes of it that are kept for backward.
    #[allow(clippy::too_many_arguments)]
    fn value_cost(
        &self,
        value: Value,
        shape: &[u64],
        (made, needed): &(Layout, Layout),
        parts: &[Part<'_>],
        producer_keeps: bool,
        prices: &Prices<'_>,
        converter: &mut Converter<'_>,
    ) -> (u64, u64) {
        let (mesh, dtype) = (&self.spec.mesh, self.spec.dtype);
        let local = |l: &Layout| l.local(shape, mesh).map_or(0, |s| s.iter().product::<u64>());
        let mut convert = |from: &Layout, to: &Layout| match converter.path(from, to, shape) {
            Some((steps, _)) => prices.steps(from, &steps, shape, mesh, dtype),
            None => FORBIDDEN,
        };
        let sum = |elements: u64| prices.kernel(&Kernel::Add { elements, dtype });
        let mut copies: Vec<&Layout> = vec![];
        let mut gradients: Vec<&Layout> = vec![];
        let mut time = 0;
        for part in parts {
            if !copies.contains(&part.wanted) {
                copies.push(part.wanted);
                time = add(time, convert(made, part.wanted));
            }
            match (part.gives, gradients.contains(&part.given)) {
                (false, _) => {}
                (true, true) => time = add(time, sum(local(part.given))),
                (true, false) => {
                    time = add(time, convert(part.given, needed));
                    if !gradients.is_empty() {
                        time = add(time, sum(local(needed)));
                    }
                    gradients.push(part.given);
                }
            }
        }
        let is_output = |l: &Layout| parts.iter().any(|p| p.is_output && p.wanted == l);
        let elsewhere = |l: &Layout| is_output(l) || (value == Value::Input && l == made);
        let mut held: Vec<&Layout> = parts.iter().filter(|p| p.keeps).map(|p| p.wanted).collect();
        held.extend(producer_keeps.then_some(made));
        held.sort();
        held.dedup();
        let bytes = |l: &&Layout| dtype.bytes(local(l)).align(ALIGNMENT).get();
        (time, held.iter().filter(|l| !elsewhere(l)).map(bytes).sum())
    }
}

impl Reader {
    fn part(&self, side: usize, output: usize) -> Part<'_> {
        let (wanted, given) = &self.sides[side];
        Part { wanted, given, gives: self.gives, keeps: self.keeps, is_output: self.node == output }
    }
}

/// Groups strategies by what they ask of a value.
fn distinct(all: Vec<(Layout, Layout)>) -> Reader {
    let mut sides: Vec<(Layout, Layout)> = vec![];
    let mut side_of = vec![];
    for side in all {
        let known = sides.iter().position(|s| *s == side);
        side_of.push(known.unwrap_or_else(|| {
            sides.push(side);
            sides.len() - 1
        }));
    }
    Reader { node: usize::MAX, sides, side_of, gives: false, keeps: false }
}

/// Every way to pick the producer's side and each reader's.
fn tuples(made: usize, readers: &[Reader]) -> Vec<Vec<usize>> {
    let counts = std::iter::once(made).chain(readers.iter().map(|r| r.sides.len()));
    counts.fold(vec![vec![]], |all, n| {
        let longer = |t: &Vec<usize>| (0..n).map(|k| [&t[..], &[k]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}

/// Whether backward reads one of forward's tensors.
fn reads_back(op: &Op, slot: Slot) -> bool {
    let passes = [Pass::BackwardInput, Pass::BackwardWeight];
    passes.iter().filter_map(|p| signature(op, *p)).any(|s| s.reads.contains(&slot))
}
