//! Building a block op by op: names in, values out, so that a family reads as its own forward pass.

use meshwright_ir::{BlockClass, Dropout, Init, Node, Op, Real, Tie, Value};

/// A block under construction. Nodes are appended in topological order.
pub(crate) struct Block {
    name: String,
    nodes: Vec<Node>,
    std: f64,
}

/// A matrix product and what surrounds it.
pub(crate) struct Projection {
    /// Input features.
    pub(crate) input: u64,
    /// Output features.
    pub(crate) output: u64,
    /// Input features that stay together; 1 if none must.
    pub(crate) input_grain: u64,
    /// Output features that stay together; 1 if none must.
    pub(crate) output_grain: u64,
    /// Whether a bias follows.
    pub(crate) bias: bool,
    /// Standard deviation of the weight's start, where it is not the block's.
    pub(crate) std: Option<f64>,
}

impl Projection {
    /// A plain product without bias.
    pub(crate) fn new(input: u64, output: u64) -> Self {
        Self { input, output, input_grain: 1, output_grain: 1, bias: false, std: None }
    }
}

impl Block {
    /// An empty block whose matrices start with standard deviation `std`.
    pub(crate) fn new(name: &str, std: f64) -> Self {
        Self { name: name.to_string(), nodes: Vec::new(), std }
    }
    /// Appends an op.
    pub(crate) fn add<const N: usize>(&mut self, name: &str, op: Op, inputs: [Value; N]) -> Value {
        self.push(name, op, inputs.to_vec(), self.std)
    }
    /// Appends a matrix product and, if it has one, its bias as `<name>.bias`.
    pub(crate) fn project(&mut self, name: &str, x: Value, p: Projection) -> Value {
        let Projection { input, output, input_grain, output_grain, bias, std } = p;
        let op = Op::Linear { input, output, input_grain, output_grain };
        let y = self.push(name, op, vec![x], std.unwrap_or(self.std));
        match bias {
            true => self.add(&format!("{name}.bias"), Op::Bias { width: output, grain: output_grain }, [y]),
            false => y,
        }
    }
    /// Appends a multiplication by a constant.
    pub(crate) fn scale(&mut self, name: &str, x: Value, width: u64, factor: f64) -> Value {
        self.add(name, Op::Scale { width, factor: Real(factor) }, [x])
    }
    /// Appends dropout of what `name` made, as `<name>.drop`, if there is any.
    pub(crate) fn drop(&mut self, name: &str, x: Value, width: u64, dropout: Option<Dropout>) -> Value {
        match dropout {
            Some(dropout) => self.add(&format!("{name}.drop"), Op::Dropout { width, dropout }, [x]),
            None => x,
        }
    }
    /// Makes the last node share the first parameter of `class.node`.
    pub(crate) fn tie_last(&mut self, class: &str, node: &str) {
        if let Some(last) = self.nodes.last_mut() {
            last.tied = Some(Tie { class: class.to_string(), node: node.to_string() });
        }
    }
    /// The finished block.
    pub(crate) fn finish(self) -> BlockClass {
        BlockClass { name: self.name, nodes: self.nodes }
    }

    fn push(&mut self, name: &str, op: Op, inputs: Vec<Value>, std: f64) -> Value {
        let normal = Init::Normal { std: Real(std) };
        // Only a Gaussian start that differs from the op's own is worth a word in the document.
        let init = match op.params().first().map(|p| p.init) {
            Some(Init::Normal { std: own }) if own != Real(std) => Some(normal),
            Some(Init::Normal { .. } | Init::Ones | Init::Zeros) | None => None,
        };
        self.nodes.push(Node { name: name.to_string(), op, inputs, init, tied: None });
        Value::Node(self.nodes.len() as u32 - 1)
    }
}
