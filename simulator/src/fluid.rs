//! Cores and memory bandwidth that ranks share: work as fluid. Each job wants one core; rates are the max-min fair ones
//! under "rates sum to at most the cores" and "rates times bytes per time sum to at most the bandwidth", found by
//! progressive filling (Bertsekas and Gallager 1992, section 6.5.2) and again after each instant at which jobs start or
//! end. A job may stand for equal ones of several ranks. The invariants: a job whose rate does not change is never touched,
//! so uncontended work takes exactly its own time; and demand is summed exactly, so neither the order of jobs nor one job
//! in place of several equal ones changes a rate.

/// Work under way on one device.
#[derive(Debug, Clone)]
struct Job {
    /// Whose: class and instruction.
    key: (u32, u32),
    /// Picoseconds of work left at `since`, running alone.
    left: f64,
    /// When `left` was true.
    since: u64,
    /// Progress per picosecond since then.
    rate: f64,
    /// When it ends at this rate.
    finish: u64,
    /// Bytes per picosecond of its own work, in units of 1 / [`UNIT`].
    intensity: u128,
    /// How many such jobs there are.
    count: u32,
}

/// Bytes per picosecond are counted in this fraction: 10^6 bytes per picosecond of a thousand jobs still fit, and an
/// intensity loses none of its 53 bits above 2^-11.
const UNIT: f64 = (1u128 << 64) as f64;

/// One device's cores and memory bandwidth.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    cores: f64,
    /// Bytes per picosecond.
    bandwidth: f64,
    /// By key.
    jobs: Vec<Job>,
    stale: bool,
}

impl Pool {
    /// `bandwidth` in bytes per second.
    pub(crate) fn new(cores: u32, bandwidth: f64) -> Self {
        Self { cores: f64::from(cores), bandwidth: bandwidth * 1e-12, jobs: Vec::new(), stale: false }
    }

    /// Starts `count` jobs of `work` picoseconds, each of which moves `bytes` through memory.
    pub(crate) fn add(&mut self, now: u64, key: (u32, u32), (work, bytes): (u64, u64), count: u32) {
        let intensity = if work == 0 { 0 } else { (bytes as f64 / work as f64 * UNIT) as u128 };
        let finish = if work == 0 { now } else { u64::MAX };
        let job = Job { key, left: work as f64, since: now, rate: 0.0, finish, intensity, count };
        let at = self.jobs.partition_point(|j| j.key < key);
        self.jobs.insert(at, job);
        self.stale = true;
    }

    /// A job that ends by `now` at the latest, whatever the new rates, by time and key.
    pub(crate) fn due(&self, now: u64) -> Option<(u64, u32, u32)> {
        let due = self.jobs.iter().filter(|j| j.finish <= now);
        due.map(|j| (j.finish, j.key.0, j.key.1)).min()
    }

    /// The job that ends first, by time and key, once nothing more happens at `now`.
    pub(crate) fn next(&mut self, now: u64) -> Option<(u64, u32, u32)> {
        if self.stale {
            self.refill(now);
        }
        self.jobs.iter().map(|j| (j.finish, j.key.0, j.key.1)).min()
    }

    /// Ends a job.
    pub(crate) fn remove(&mut self, key: (u32, u32)) {
        let at = self.jobs.binary_search_by_key(&key, |j| j.key).expect("a job that ends was started");
        self.jobs.remove(at);
        self.stale = true;
    }

    /// New rates from `now` on.
    fn refill(&mut self, now: u64) {
        self.stale = false;
        let running = self.jobs.iter().filter(|j| j.finish > now).map(|j| (j.intensity, j.count));
        let (light, heavy) = fair_rates(self.cores, self.bandwidth, running);
        for job in self.jobs.iter_mut().filter(|j| j.finish > now) {
            let rate = if job.intensity > 0 { heavy } else { light };
            if rate != job.rate {
                job.left = (job.left - job.rate * (now - job.since) as f64).max(0.0);
                (job.since, job.rate) = (now, rate);
                job.finish = now + (job.left / rate).round() as u64;
            }
        }
    }
}

/// Max-min fair rates of jobs that move nothing and of jobs that move something, from the bytes per time of each kind of
/// job, in units, and how many there are. All
/// rates rise together until each job has a core, the cores are used up, or the bandwidth is; only the last leaves
/// anyone to rise further: those that move nothing.
fn fair_rates(cores: f64, bandwidth: f64, running: impl Iterator<Item = (u128, u32)>) -> (f64, f64) {
    let (mut jobs, mut movers, mut demand) = (0.0, 0.0, 0u128);
    for (intensity, count) in running {
        jobs += f64::from(count);
        movers += if intensity > 0 { f64::from(count) } else { 0.0 };
        demand += intensity * u128::from(count);
    }
    let demand = demand as f64 / UNIT;
    let by_core = (cores / jobs).min(1.0);
    let by_bandwidth = if demand > 0.0 { bandwidth / demand } else { f64::INFINITY };
    if by_core <= by_bandwidth || movers == 0.0 {
        return (by_core, by_core);
    }
    let light = (cores - movers * by_bandwidth) / (jobs - movers);
    (light.min(1.0), by_bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(cores: f64, bandwidth: f64, intensities: &[f64]) -> (f64, f64) {
        fair_rates(cores, bandwidth, intensities.iter().map(|x| ((x * UNIT) as u128, 1)))
    }

    #[test]
    fn progressive_filling() {
        assert_eq!(rates(4.0, 10.0, &[1.0, 1.0]), (1.0, 1.0));
        assert_eq!(rates(2.0, 10.0, &[1.0; 4]), (0.5, 0.5));
        // Four cores, bandwidth for half of what two movers want: they halve, the others keep their cores.
        assert_eq!(rates(4.0, 2.0, &[2.0, 2.0, 0.0, 0.0]), (1.0, 0.5));
        // Two cores for three jobs, of which one mover is held to a quarter: the rest goes to the others.
        assert_eq!(rates(2.0, 1.0, &[4.0, 0.0, 0.0]), (0.875, 0.25));
        // One that stands for three.
        let unit = UNIT as u128;
        assert_eq!(fair_rates(4.0, 3.0, [(2 * unit, 3)].into_iter()), rates(4.0, 3.0, &[2.0; 3]));
    }

    #[test]
    fn work_is_conserved_when_others_come_and_go() {
        let mut pool = Pool::new(1, 1e12);
        pool.add(0, (0, 0), (100, 0), 1);
        assert_eq!(pool.next(0), Some((100, 0, 0)));
        pool.add(40, (1, 0), (30, 0), 1);
        // Both at half speed: the second needs 60, the first has 60 left.
        assert_eq!(pool.next(40), Some((100, 1, 0)));
        pool.remove((1, 0));
        assert_eq!(pool.next(100), Some((130, 0, 0)));
    }
}
