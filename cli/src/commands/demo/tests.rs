//! The plan, the table, and one small real run.

use super::*;
use crate::output::units::ByteSize;

fn args() -> Demo {
    Demo {
        size: ByteSize(1_000_000),
        seed: 1,
        congestion: None,
        all: false,
        json: false,
    }
}

#[test]
fn every_path_and_every_scheduler_has_its_run() {
    let every = Demo {
        all: true,
        ..args()
    };
    let schedulers = anabranch_schedulers::builtin().entries().len();
    let others = SHAPES.len() + 1;
    assert_eq!(
        plans(&every, &Names::default()).unwrap().len(),
        others + schedulers
    );
    let plans = plans(&args(), &Names::default()).unwrap();
    assert_eq!(plans.len(), others + SHOWN.len());
    assert_eq!(
        plans
            .iter()
            .filter(|(_, plan)| plan.cut_at.is_some())
            .count(),
        1
    );
}

#[test]
fn the_file_depends_on_the_seed_alone() {
    let directory = tempfile::tempdir().unwrap();
    let content = |seed| {
        let path = directory.path().join("file");
        write_random(&path, 3000, seed).unwrap();
        fs::read(path).unwrap()
    };
    assert_eq!(content(1), content(1));
    assert_ne!(content(1), content(2));
    assert_eq!(content(1).len(), 3000);
}

#[test]
fn the_scratch_directory_does_not_stay() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.0.clone();
    fs::write(path.join("x"), "x").unwrap();
    drop(scratch);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_arrives_over_three_paths() {
    let scratch = Scratch::new().unwrap();
    write_random(&scratch.0.join(FILE), 1_000_000, 1).unwrap();
    let (_server, target) = serve(&scratch.0, &Arc::default()).unwrap();
    let plans = plans(&args(), &Names::default()).unwrap();
    let (name, plan) = plans
        .into_iter()
        .find(|(name, _)| name == "round-robin")
        .unwrap();
    // On a machine that is too busy, a transfer fails and is tried again.
    let started = Instant::now();
    let figures = loop {
        match run::run(&target, &plan).await {
            Ok(figures) => break figures,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(120), "{error:?}"),
        }
    };
    assert_eq!(figures.bytes, 1_000_000);
    let row = row(name, &plan, &figures, 1e8);
    assert!(
        row.shares
            .iter()
            .all(|share| share.is_some_and(|share| share > 0.0)),
        "{row:?}"
    );
    assert!(table(&[row]).to_string().contains("round-robin"));
}
