//! Large sharding problems.
mod ascent;
mod core;
mod dual;
mod instance;
mod matrix;
mod net;
mod parse;
mod presolve;
mod rows;

pub use instance::{Instance, Link, Node, RULED_OUT, Score, evaluate};
pub use parse::parse;

/// x
pub fn stats(instance: &Instance) -> String {
    let t = std::time::Instant::now();
    let mut net = net::Net::new(instance);
    let a = t.elapsed();
    let r = presolve::presolve(&mut net, &|| false);
    let left = net.left();
    let deg: Vec<usize> = left.iter().map(|v| net.vertices[*v as usize].near.len()).collect();
    let mut hist = std::collections::BTreeMap::<usize, usize>::new();
    deg.iter().for_each(|d| *hist.entry(*d).or_default() += 1);
    let mut kh = std::collections::BTreeMap::<usize, usize>::new();
    left.iter().for_each(|v| *kh.entry(net.vertices[*v as usize].width()).or_default() += 1);
    let cells: usize = left.iter().flat_map(|v| net.vertices[*v as usize].near.values()).map(|id| net.store.get(*id).cells.len()).sum();
    let items: usize = left.iter().map(|v| net.vertices[*v as usize].items.len()).sum();
    let distinct: std::collections::BTreeSet<u32> = left.iter().flat_map(|v| net.vertices[*v as usize].near.values().copied()).collect();
    format!("{r:?} build {a:?} total {:?}: {} vertices, {} edges, {} cells, {} distinct(directed), {} items, {} rows, const {}\n deg {hist:?}\n K {kh:?}", t.elapsed(), left.len(), deg.iter().sum::<usize>()/2, cells/2, distinct.len(), items, net.held.len(), net.constant)
}
/// x
pub fn dual_trial(instance: &Instance, seconds: f64) {
    let t = std::time::Instant::now();
    let mut net = net::Net::new(instance);
    presolve::presolve(&mut net, &|| false).unwrap();
    let core = core::Core::new(&net);
    println!("rows {}", core.room.len());
    let mut asc = ascent::Ascent::new(&core);
    let mut upper: Option<f64> = None;
    let mut next = 1;
    while t.elapsed().as_secs_f64() < seconds {
        let s = asc.step(upper);
        let held = core.held(&s.choice);
        let over = held.iter().zip(&core.room).map(|(h, r)| h - r).max().unwrap_or(0);
        let cost = core.cost_of(&s.choice);
        if let Some(c) = cost && over <= 0 { upper = Some(upper.unwrap_or(f64::INFINITY).min(c as f64)) }
        if asc.sweeps == next { next = next * 5 / 4 + 1;
            println!("{:.2}s it {} bound {:.0} best {:.0} cost {:?} over {over} upper {:.0} f {:.4}", t.elapsed().as_secs_f64(), asc.sweeps, s.bound + net.constant as f64, asc.bound + net.constant as f64, cost.map(|c| c + net.constant), upper.unwrap_or(0.0) + net.constant as f64, asc.ambition); }
    }
    println!("{} sweeps best {} certified {}", asc.sweeps, asc.bound + net.constant as f64, asc.best.certify() + net.constant);
}
