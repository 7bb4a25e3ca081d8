//! Results on disk: one folder per run, one per trial in it, each file written whole as soon as it is known.

use super::TrialRecord;
use crate::digest::{hex, write_whole};
use crate::fault::{Outcome, Trying};
use crate::plan::{Plan, Trial};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder of one run.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Makes the folder of a new run below `results` and saves the plan in it.
    pub fn begin(results: &Path, plan: &Plan) -> Outcome<Self> {
        let json = serde_json::to_vec_pretty(plan).trying("the plan as JSON")?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_millis()).unwrap_or_default();
        std::fs::create_dir_all(results).trying(results.display())?;
        let results = std::path::absolute(results).trying(results.display())?;
        // The process keeps apart two labs that begin the same plan in the same millisecond.
        let folder = results.join(format!("{since}-{}-{}", &hex(&[&json])[..8], std::process::id()));
        std::fs::create_dir(&folder).trying(folder.display())?;
        write_whole(&folder.join("plan.json"), &json)?;
        Ok(Self { folder })
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder for a trial's console, records and QEMU's words.
    pub fn trial(&self, plan: &Plan, trial: &Trial) -> Outcome<PathBuf> {
        let role = plan.kernels[trial.kernel].role;
        let name = format!(
            "{:03}-{}-{}-{role}",
            trial.number, plan.topologies[trial.topology].name, plan.bundles[trial.bundle].bundle.name
        );
        // `@1/12` in a topology's name must not make folders.
        let folder = self.folder.join("trials").join(name.replace('/', ":"));
        std::fs::create_dir_all(&folder).trying(folder.display())?;
        Ok(folder)
    }

    /// Saves a trial's record into its folder.
    pub fn keep(&self, folder: &Path, record: &TrialRecord) -> Outcome<()> {
        let json = serde_json::to_vec_pretty(record).trying("a record as JSON")?;
        write_whole(&folder.join("record.json"), &json)
    }

    /// Saves the report's JSON.
    pub fn finish(&self, report: &serde_json::Value) -> Outcome<()> {
        let json = serde_json::to_vec_pretty(report).trying("the report as JSON")?;
        write_whole(&self.folder.join("report.json"), &json)
    }
}
