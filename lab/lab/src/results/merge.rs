//! Folders of results of one scenario, such as those of its shards, put together.

use super::outcome::Part;
use super::store::{Store, StoreError};
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The scenario of which all of these folders hold results, as one of them keeps it.
///
/// # Errors
/// [`StoreError`] if there is no folder, or one holds none or those of another scenario.
pub fn common_scenario(folders: &[PathBuf]) -> Result<(PathBuf, String), StoreError> {
    let read = |folder: &Path| {
        let path = folder.join("campaign.toml");
        let text = fs::read_to_string(&path).map_err(|error| StoreError::Empty {
            path: folder.to_owned(),
            error,
        })?;
        Ok((path, text))
    };
    let Some((first, others)) = folders.split_first() else {
        return Err(StoreError::NoFolder);
    };
    let (path, text) = read(first)?;
    for folder in others {
        if read(folder)?.1 != text {
            return Err(StoreError::NotAlike {
                path: folder.clone(),
                first: first.clone(),
            });
        }
    }
    Ok((path, text))
}

/// What folders have of the runs of a plan, made by the program of this hash, in the plan's order.
///
/// # Errors
/// [`StoreError`] if a folder cannot be read.
pub fn gathered(plan: &Plan, folders: &[PathBuf], program: &str) -> Result<Vec<Part>, StoreError> {
    let stores = folders
        .iter()
        .map(|folder| Store::to_read(folder, &plan.name, "sim"));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let of = |id: &str| stores.iter().find_map(|store| store.part(id, program));
    Ok(plan.runs.iter().filter_map(|run| of(&run.id)).collect())
}

/// These parts in the order of a plan. Runs that it does not have are left out, and of equal ones
/// the first is taken.
pub fn in_order<'a>(plan: &Plan, parts: impl IntoIterator<Item = &'a Part>) -> Vec<Part> {
    let mut known: BTreeMap<&str, &Part> = BTreeMap::new();
    for part in parts {
        known.entry(part.run_id.as_str()).or_insert(part);
    }
    let runs = plan.runs.iter();
    runs.filter_map(|run| known.get(run.id.as_str()).copied().cloned())
        .collect()
}

/// These parts with nothing about the time that runs took on this machine, so that equal runs make
/// equal tables.
pub fn without_clock(parts: &[Part]) -> Vec<Part> {
    let mut parts = parts.to_vec();
    for part in &mut parts {
        // Not measured: a table has nothing there.
        part.outcome.wall_s = f64::NAN;
    }
    parts
}
