//! Reading *iopddl* JSON. A general reader would hold a hundred megabytes of matrices as a tree; this one goes over the
//! bytes once, keeps numbers only, and keeps each distinct matrix once. The invariant: whatever the bytes, the answer is an
//! instance whose shapes agree or one message that names the field and what to change.

use super::instance::{Instance, Link, Node, RULED_OUT};
use std::collections::HashMap;

/// Deepest nesting of a value that is skipped.
const DEEPEST: usize = 64;

/// Largest number: it stays exact in signed arithmetic.
const LARGEST: u64 = i64::MAX as u64;

/// Reads an instance. `Err` names the field or the place, and the fix after a semicolon.
pub fn parse(bytes: &[u8]) -> Result<Instance, String> {
    let mut read = Reader { bytes, at: 0 };
    let mut found = None;
    read.object("the file", &mut |r, key| match key {
        "problem" if found.is_some() => Err("problem is there twice; keep one".into()),
        "problem" => problem(r).map(|p| found = Some(p)),
        _ => r.skip(0),
    })?;
    read.space();
    if read.at < bytes.len() {
        return Err(read.wrong("the end of the file"));
    }
    found.unwrap_or_else(Parts::default).instance()
}

/// The fields as they come, in any order.
#[derive(Default)]
struct Parts {
    name: Option<String>,
    intervals: Option<Vec<(u64, u64)>>,
    costs: Option<Vec<Vec<u64>>>,
    usages: Option<Vec<Vec<u64>>>,
    ends: Option<Vec<(u64, u64)>>,
    matrices: Option<(Vec<u32>, Vec<Vec<u64>>)>,
    limit: Option<u64>,
}

fn once<T>(place: &mut Option<T>, field: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{field} is there twice; keep one")),
    }
}

fn problem(r: &mut Reader<'_>) -> Result<Parts, String> {
    let mut p = Parts::default();
    r.object("problem", &mut |r, key| match key {
        "name" => once(&mut p.name, "problem.name", r.string("problem.name")?),
        "nodes" => r.object("problem.nodes", &mut |r, key| match key {
            "intervals" => {
                once(&mut p.intervals, "problem.nodes.intervals", r.pairs("problem.nodes.intervals")?)
            }
            "costs" => once(&mut p.costs, "problem.nodes.costs", r.rows("problem.nodes.costs")?),
            "usages" => once(&mut p.usages, "problem.nodes.usages", r.rows("problem.nodes.usages")?),
            _ => r.skip(0),
        }),
        "edges" => r.object("problem.edges", &mut |r, key| match key {
            "nodes" => once(&mut p.ends, "problem.edges.nodes", r.pairs("problem.edges.nodes")?),
            "costs" => once(&mut p.matrices, "problem.edges.costs", r.matrices("problem.edges.costs")?),
            _ => r.skip(0),
        }),
        "usage_limit" => {
            let limit = r.number(&|| "problem.usage_limit".into())?;
            once(&mut p.limit, "problem.usage_limit", limit)
        }
        _ => r.skip(0),
    })?;
    Ok(p)
}

impl Parts {
    fn instance(self) -> Result<Instance, String> {
        let lacks = |field: &str, shape: &str| format!("problem.{field} is missing; add it: {shape}");
        let per_node = "one list of whole numbers a node";
        let intervals =
            self.intervals.ok_or_else(|| lacks("nodes.intervals", "one [from, until] pair a node"))?;
        let costs = self.costs.ok_or_else(|| lacks("nodes.costs", per_node))?;
        let usages = self.usages.ok_or_else(|| lacks("nodes.usages", per_node))?;
        let ends = self.ends.ok_or_else(|| lacks("edges.nodes", "one [node, node] pair an edge"))?;
        let (ids, matrices) =
            self.matrices.ok_or_else(|| lacks("edges.costs", "one row-major matrix an edge"))?;
        let limit = self.limit.ok_or_else(|| lacks("usage_limit", "a whole number"))?;
        let n = intervals.len();
        for (field, found) in [("costs", costs.len()), ("usages", usages.len())] {
            if found != n {
                return Err(format!(
                    "problem.nodes.{field} has {found} lists for the {n} pairs in problem.nodes.intervals; give each node one of each"
                ));
            }
        }
        if ids.len() != ends.len() {
            return Err(format!(
                "problem.edges.costs has {} lists for the {} pairs in problem.edges.nodes; give each edge one of each",
                ids.len(),
                ends.len()
            ));
        }
        let mut nodes = Vec::with_capacity(n);
        for (k, ((interval, costs), usages)) in intervals.into_iter().zip(costs).zip(usages).enumerate() {
            if costs.is_empty() {
                return Err(format!("problem.nodes.costs[{k}] is empty; every node needs a strategy"));
            }
            if costs.len() != usages.len() {
                return Err(format!(
                    "problem.nodes.usages[{k}] has {} numbers for {} costs; give each strategy one of each",
                    usages.len(),
                    costs.len()
                ));
            }
            nodes.push(Node { from: interval.0, until: interval.1, costs, usages });
        }
        let mut edges = Vec::with_capacity(ends.len());
        for (e, ((from, to), matrix)) in ends.into_iter().zip(ids).enumerate() {
            for (side, end) in [from, to].into_iter().enumerate() {
                if end >= n as u64 {
                    return Err(format!(
                        "problem.edges.nodes[{e}][{side}] is {end}; name one of the {n} nodes, counted from 0"
                    ));
                }
            }
            let (rows, columns) = (nodes[from as usize].costs.len(), nodes[to as usize].costs.len());
            let found = matrices[matrix as usize].len();
            if Some(found) != rows.checked_mul(columns) {
                return Err(format!(
                    "problem.edges.costs[{e}] has {found} numbers; give {rows} x {columns}, as nodes {from} and {to} have strategies"
                ));
            }
            edges.push(Link { from: from as u32, to: to as u32, matrix });
        }
        Ok(Instance { name: self.name.unwrap_or_default(), nodes, edges, matrices, limit: Some(limit) })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.bytes.get(self.at).copied()
    }

    /// Takes a mark if it comes next.
    fn take(&mut self, mark: u8) -> bool {
        let there = self.peek() == Some(mark);
        self.at += usize::from(there);
        there
    }

    /// What was expected, where, and what stood there.
    fn wrong(&self, expected: &str) -> String {
        let before = &self.bytes[..self.at.min(self.bytes.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
        let rest = &self.bytes[before.len()..];
        let found = String::from_utf8_lossy(&rest[..rest.len().min(12)]);
        let found = match found.lines().next() {
            None => "the file ends".to_string(),
            Some(text) => format!("found `{text}`"),
        };
        format!("line {line}, column {column}: {found}; put {expected} there")
    }

    fn expect(&mut self, mark: u8, within: &str) -> Result<(), String> {
        match self.take(mark) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{}` of {within}", mark as char))),
        }
    }

    fn object(
        &mut self,
        what: &str,
        field: &mut dyn FnMut(&mut Self, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'{', what)?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string(&format!("a key of {what}"))?;
            self.expect(b':', what)?;
            field(self, &key)?;
            if !self.take(b',') {
                return self.expect(b'}', what);
            }
        }
    }

    /// Goes over a list; the closure reads one item, given its position.
    fn list(
        &mut self,
        what: &dyn Fn() -> String,
        item: &mut dyn FnMut(&mut Self, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        if !self.take(b'[') {
            return Err(self.wrong(&format!("`[` of {}", what())));
        }
        if self.take(b']') {
            return Ok(());
        }
        let mut k = 0;
        loop {
            item(self, k)?;
            k += 1;
            if !self.take(b',') {
                return match self.take(b']') {
                    true => Ok(()),
                    false => Err(self.wrong(&format!("`,` or `]` of {}", what()))),
                };
            }
        }
    }

    fn string(&mut self, what: &str) -> Result<String, String> {
        if !self.take(b'"') {
            return Err(self.wrong(&format!("a string, {what},")));
        }
        let start = self.at;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(self.wrong(&format!("the closing quote of {what}"))),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned();
        self.at += 1;
        Ok(text)
    }

    /// A whole number from 0 to [`LARGEST`]; `5.0` and `1e18` are whole.
    #[inline]
    fn number(&mut self, what: &dyn Fn() -> String) -> Result<u64, String> {
        self.space();
        let start = self.at;
        let mut value = 0u64;
        // Eighteen digits cannot overflow.
        while let Some(digit) = self.bytes.get(self.at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        let plain = !matches!(self.bytes.get(self.at), Some(b'.' | b'e' | b'E' | b'-' | b'+'));
        match self.at - start {
            1..=18 if plain => Ok(value),
            _ => self.odd_number(start, what),
        }
    }

    #[cold]
    fn odd_number(&mut self, start: usize, what: &dyn Fn() -> String) -> Result<u64, String> {
        let of_number = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+');
        self.at = start;
        let length = self.bytes[start..].iter().take_while(|b| of_number(b)).count();
        let text = String::from_utf8_lossy(&self.bytes[start..start + length]).into_owned();
        if let Some(whole) = text.parse::<u64>().ok().filter(|v| *v <= LARGEST) {
            self.at += length;
            return Ok(whole);
        }
        match text.parse::<f64>() {
            Err(_) => Err(self.wrong(&format!("a whole number, {},", what()))),
            Ok(v)
                if v >= 0.0
                    && v.fract() == 0.0
                    && v <= RULED_OUT as f64
                    && text.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                self.at += length;
                Ok(v as u64)
            }
            Ok(_) => Err(format!("{} is {text}; give a whole number from 0 to {LARGEST}", what())),
        }
    }

    fn pairs(&mut self, field: &str) -> Result<Vec<(u64, u64)>, String> {
        let mut pairs = Vec::new();
        self.list(&|| field.into(), &mut |r, k| {
            let mut pair = [0; 2];
            let mut length = 0;
            r.list(&|| format!("{field}[{k}]"), &mut |r, side| {
                let value = r.number(&|| format!("{field}[{k}][{side}]"))?;
                if let Some(place) = pair.get_mut(side) {
                    *place = value;
                }
                length = side + 1;
                Ok(())
            })?;
            if length != 2 {
                return Err(format!("{field}[{k}] has {length} numbers; give two"));
            }
            pairs.push((pair[0], pair[1]));
            Ok(())
        })?;
        Ok(pairs)
    }

    /// Numbers of one list, appended.
    fn numbers(&mut self, field: &str, k: usize, into: &mut Vec<u64>) -> Result<(), String> {
        self.list(&|| format!("{field}[{k}]"), &mut |r, j| {
            into.push(r.number(&|| format!("{field}[{k}][{j}]"))?);
            Ok(())
        })
    }

    fn rows(&mut self, field: &str) -> Result<Vec<Vec<u64>>, String> {
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        self.list(&|| field.into(), &mut |r, k| {
            row.clear();
            r.numbers(field, k, &mut row)?;
            rows.push(row.as_slice().to_vec());
            Ok(())
        })?;
        Ok(rows)
    }

    /// Lists, each distinct one kept once: position per list, and the distinct ones. Lists written alike are told by
    /// their bytes, before any number is read.
    fn matrices(&mut self, field: &str) -> Result<(Vec<u32>, Vec<Vec<u64>>), String> {
        let (mut ids, mut matrices, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<&[u8], u32> = HashMap::new();
        let bytes = self.bytes;
        self.list(&|| field.into(), &mut |r, k| {
            r.space();
            let start = r.at;
            let length = bytes[start..].iter().position(|b| *b == b']').map_or(0, |l| l + 1);
            if let Some(id) = known.get(&bytes[start..start + length]) {
                r.at += length;
                ids.push(*id);
                return Ok(());
            }
            numbers.clear();
            r.numbers(field, k, &mut numbers)?;
            let id = matrices.len() as u32;
            // Only what was read as one list of numbers is known by its bytes.
            known.insert(&bytes[start..r.at], id);
            matrices.push(numbers.as_slice().to_vec());
            ids.push(id);
            Ok(())
        })?;
        Ok((ids, matrices))
    }

    /// Steps over any value.
    fn skip(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(self.wrong("a value nested less deeply"));
        }
        match self.peek() {
            Some(b'{') => self.object("an object", &mut |r, _| r.skip(depth + 1)),
            Some(b'[') => self.list(&|| "a list".into(), &mut |r, _| r.skip(depth + 1)),
            Some(b'"') => self.string("a value").map(drop),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+');
                let length = self.bytes[self.at..].iter().take_while(|b| word(b)).count();
                self.at += length;
                Ok(())
            }
            _ => Err(self.wrong("a value")),
        }
    }
}
