//! Tables of measured runs through the whole path: what is predicted, what is skipped and why, what calibration recovers.

use meshwright::validate::{calibrate, predict, predict_once, prepare, read, score, setups, with_baseline};

const HEAD: &str = "id,source,gpu,n_gpus,gpus_per_node,inter_node_net,framework,layers,hidden,ffn_hidden,heads,kv_heads,vocab,\
    seq_len,dp,tp,pp,micro_batch,global_batch,precision,recompute,flash_attention,sp,vpp,iter_time_s";

fn row(id: &str, degrees: [u32; 3], micro_batch: u32, batch: u32, seconds: f64) -> String {
    let [dp, tp, pp] = degrees;
    let devices = dp * tp * pp;
    format!(
        "{id},a table,A100-SXM,{devices},8,,Megatron-LM,4,512,2048,8,8,8192,256,{dp},{tp},{pp},{micro_batch},{batch},fp16,full,n,n,1,{seconds}"
    )
}

fn table(rows: &[String]) -> String {
    format!("{HEAD}\n{}\n", rows.join("\n"))
}

#[test]
fn a_long_step_is_drawn_exactly_from_two_short_ones() {
    // One row says how long 12 micro-batches take by themselves, were they not drawn: a table of its own length.
    for degrees in [[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 1, 4]] {
        let dp = degrees[0];
        let times: Vec<f64> = [6, 8, 10]
            .into_iter()
            .map(|m| {
                let rows = read("t.csv", &table(&[row("R1", degrees, 1, dp * m, 1.0)])).unwrap();
                let (ready, skipped) = setups(&rows);
                assert!(skipped.is_empty(), "{skipped:?}");
                predict_once(&ready)[0].as_ref().unwrap().step_s
            })
            .collect();
        let even = (times[2] - times[1]) - (times[1] - times[0]);
        assert!(even.abs() < 1e-3 * times[0], "{degrees:?}: {times:?}");
    }
}

#[test]
fn terms_on_the_critical_path_add_up_to_the_step() {
    let rows = read("t.csv", &table(&[row("R1", [2, 2, 2], 1, 4, 1.0)])).unwrap();
    let (ready, _) = setups(&rows);
    let predicted = predict_once(&ready).remove(0).unwrap();
    let cost = meshwright_cost_models::CostModel::new(&ready[0].job.cluster);
    let sum: f64 = predicted.terms.iter().map(|(t, n)| n * t.seconds(&cost)).sum();
    assert!((sum / predicted.step_s - 1.0).abs() < 1e-9, "{sum} of {}", predicted.step_s);
}

#[test]
fn calibration_comes_nearer_and_leaves_others_alone() {
    // Steps as a machine would take them whose host is half as fast and whose products are a fifth slower.
    let shapes: Vec<([u32; 3], u32)> =
        [[1, 1, 1], [2, 1, 1], [4, 1, 1], [1, 2, 1], [2, 2, 1], [1, 1, 2], [2, 1, 2]]
            .into_iter()
            .flat_map(|d| [1, 8, 32].map(|b| (d, b)))
            .collect();
    let made = |seconds: &dyn Fn(usize) -> f64| {
        let all = shapes.iter().enumerate();
        table(
            &all.map(|(k, (d, b))| row(&format!("R{k}"), *d, *b, b * d[0] * 2, seconds(k)))
                .collect::<Vec<_>>(),
        )
    };
    let (mut truth, _) = setups(&read("t.csv", &made(&|_| 1.0)).unwrap());
    let constants = "[\"a100-sxm-80/megatron-lm\".device]\ndispatch = 110_000_000\n";
    let constants = meshwright_zoo::constants_from_toml("c.toml", constants).unwrap();
    meshwright::validate::with_constants(&mut truth, "c.toml", &constants).unwrap();
    let steps: Vec<f64> = predict_once(&truth).into_iter().map(|p| p.unwrap().step_s).collect();

    let (mut ready, _) = setups(&read("t.csv", &made(&|k| steps[k])).unwrap());
    let prepared = prepare(&ready);
    let error = |ready: &[meshwright::validate::Setup]| {
        let predicted: Vec<_> = predict(&prepared, ready).into_iter().map(Result::unwrap).collect();
        let rows: Vec<_> = ready.iter().zip(&predicted).collect();
        score(&with_baseline(&rows)).mape.unwrap()
    };
    let before = error(&ready);
    let fitted = calibrate(&prepared, &mut ready);
    let after = error(&ready);
    assert!(before > 0.10 && after < 0.03, "{before} to {after}");
    // Twenty-one rows move four constants, and the one that was wrong is found.
    assert_eq!((fitted.len(), fitted[0].moved), (1, 4));
    let dispatch = fitted[0].constants.device.dispatch.unwrap().seconds();
    assert!((dispatch / 110e-6 - 1.0).abs() < 0.15, "{dispatch}");
}

#[test]
fn what_cannot_be_predicted_says_why() {
    let mut rows = vec![row("ok", [2, 1, 1], 1, 4, 1.0)];
    rows.push(row("vpp", [1, 1, 2], 1, 4, 1.0).replace(",n,1,1", ",n,3,1"));
    rows.push(row("degrees", [2, 1, 1], 1, 4, 1.0).replace("A100-SXM,2,", "A100-SXM,4,"));
    rows.push(row("device", [2, 1, 1], 1, 4, 1.0).replace("A100-SXM", "TPU v5p"));
    let (ready, skipped) = setups(&read("t.csv", &table(&rows)).unwrap());
    assert_eq!(ready.len(), 1);
    let why: Vec<String> = skipped.iter().map(|s| format!("{}: {}", s.id, s.why)).collect();
    expect_test::expect![[r#"
        vpp: virtual stages (vpp 3) are not built yet
        degrees: dp 2 x tp 1 x pp 1 are not 4 devices
        device: no preset for the device `TPU v5p`"#]]
    .assert_eq(&why.join("\n"));
}
