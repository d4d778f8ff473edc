fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let table = std::fs::read_to_string(dir.join("PARAMS.csv")).unwrap();
    let (mut exact, mut n) = (0, 0);
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let file = cells[0];
        n += 1;
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        match meshwright_zoo::model_from_config(file, file, &text) {
            Ok(m) => {
                let (p, a, r) = (m.params(), m.active_params(), m.routed_params());
                let want: Option<u64> = cells[1].parse().ok();
                let active: Option<u64> = cells[2].parse().ok();
                let routed: Option<u64> = cells[3].parse().ok();
                let ok = want == Some(p) && active.unwrap_or(a) == a && routed.unwrap_or(r) == r;
                exact += usize::from(ok);
                if !ok {
                    println!(
                        "{file}: {p} want {want:?} diff {} active {a} {active:?} routed {r} {routed:?}",
                        want.map_or(0, |w| p as i128 - w as i128)
                    );
                }
            }
            Err(e) => println!("ERR {e}"),
        }
    }
    println!("{exact} of {n}");
}
