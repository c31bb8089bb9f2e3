//! A folder of results: one file for each run as it ends, and tables when all have ended.
//!
//! ```text
//! campaign.toml      the scenario as it was read
//! campaign.files/    the files it names: traces, contender files
//! parts/ID.json      one run each; renamed when complete, so that a part is never half written
//! runs.csv, paths.csv, series.csv, reasons.csv
//! units.csv, background.csv, datagrams.csv, decisions.jsonl   if there are any
//! runs.parquet, ...  if wanted
//! qlog/ID/           if recorded
//! ```

use super::outcome::Part;
use super::schema::{SCHEMA_VERSION, tables};
use super::write;
use crate::scenario::{Named, copy_of};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Tables that not every scenario has.
const WHERE_THERE_ARE_ANY: [&str; 3] = ["units", "background", "datagrams"];

/// A folder of results.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// An error about a folder of results.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The folder holds results of another scenario.
    #[error(
        "{} holds results of another scenario: choose another folder, or empty this one",
        path.display()
    )]
    Other {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds results of a scenario that named a file with other content.
    #[error(
        "{} holds results with another `{name}`: choose another folder, or empty this one",
        path.display()
    )]
    OtherFile {
        /// The folder.
        path: PathBuf,
        /// The file's name in the scenario.
        name: String,
    },
    /// The folder holds results of another backend.
    #[error(
        "{} holds results of --backend {was}, not of --backend {now}: choose another folder, or \
         empty this one",
        path.display()
    )]
    OtherBackend {
        /// The folder.
        path: PathBuf,
        /// The backend of the runs that are there.
        was: String,
        /// The backend of further runs.
        now: String,
    },
    /// A folder that is to have results has none.
    #[error("{} holds no results: {error}", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Folders that are put together hold results of different scenarios.
    #[error(
        "{} holds results of another scenario than {}",
        path.display(),
        first.display()
    )]
    NotAlike {
        /// The folder.
        path: PathBuf,
        /// The one before it.
        first: PathBuf,
    },
    /// There is no folder to put together.
    #[error("there is no folder to put together")]
    NoFolder,
    /// The folder cannot be created.
    #[error("results cannot be written to {}: {error}: choose another folder", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A Parquet file could not be written.
    #[error("{}: {what}", path.display())]
    Parquet {
        /// Which.
        path: PathBuf,
        /// Why.
        what: String,
    },
}

impl Store {
    /// Opens a folder for the results of a scenario called `name` by a backend, and creates it if
    /// necessary.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written, or holds results of a scenario of another name or of
    /// another backend.
    pub fn open(
        folder: &Path,
        name: &str,
        expanded: &str,
        backend: &str,
    ) -> Result<Self, StoreError> {
        let store = Self::to_read(folder, name, backend)?;
        let path = folder.to_owned();
        fs::create_dir_all(folder.join("parts"))
            .map_err(|error| StoreError::Folder { path, error })?;
        let campaign = folder.join("campaign.toml");
        Self::replace(&campaign, |out| write!(out, "# {name}\n{expanded}"))?;
        Ok(store)
    }

    /// A folder from which results of a scenario are read; nothing in it is changed. One that does
    /// not exist has none.
    ///
    /// # Errors
    /// [`StoreError`] if the folder holds results of another scenario or another backend.
    pub fn to_read(folder: &Path, name: &str, backend: &str) -> Result<Self, StoreError> {
        let store = Self {
            folder: folder.to_owned(),
        };
        let path = folder.to_owned();
        let known = fs::read_to_string(folder.join("campaign.toml"));
        if known.is_ok_and(|known| !known.starts_with(&format!("# {name}\n"))) {
            return Err(StoreError::Other { path });
        }
        if let Some(was) = store.backend().filter(|was| was != backend) {
            let now = backend.to_owned();
            return Err(StoreError::OtherBackend { path, was, now });
        }
        Ok(store)
    }

    /// Stores copies of the files that the scenario names, so that it can be read from this folder
    /// alone.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be written, or the runs stored here used other files.
    pub fn keep_files(&self, files: &[Named]) -> Result<(), StoreError> {
        let campaign = self.folder.join("campaign.toml");
        for file in files {
            let copy = copy_of(&campaign, &file.name);
            match fs::read_to_string(&copy) {
                Ok(known) if *known == *file.text => continue,
                Ok(_) if self.backend().is_some() => {
                    return Err(StoreError::OtherFile {
                        path: self.folder.clone(),
                        name: file.name.clone(),
                    });
                }
                _ => {}
            }
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder).map_err(|error| at(folder, error))?;
            }
            Self::replace(&copy, |out| out.write_all(file.text.as_bytes()))?;
        }
        Ok(())
    }

    /// The backend of the stored runs, taken from one of them.
    fn backend(&self) -> Option<String> {
        let parts = fs::read_dir(self.folder.join("parts")).ok()?;
        let texts = parts.filter_map(|part| fs::read_to_string(part.ok()?.path()).ok());
        let mut known = texts.filter_map(|text| serde_json::from_str::<Part>(&text).ok());
        known.next().map(|part| part.backend)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a run's qlog files go.
    pub fn qlog(&self, run_id: &str) -> PathBuf {
        self.folder.join("qlog").join(run_id)
    }

    /// The stored result of a run, if it is complete and from this program.
    pub fn part(&self, run_id: &str, binary_hash: &str) -> Option<Part> {
        let text = fs::read_to_string(self.part_path(run_id)).ok()?;
        let part: Part = serde_json::from_str(&text).ok()?;
        let same = part.schema == SCHEMA_VERSION && part.binary_hash == binary_hash;
        same.then_some(part)
    }

    /// Stores the result of a run.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written.
    pub fn keep(&self, part: &Part) -> Result<(), StoreError> {
        let path = self.part_path(&part.run_id);
        Self::replace(&path, |out| Ok(serde_json::to_writer(out, part)?))
    }

    /// Makes this the whole folder of these runs: stores the files that their scenarios name, and
    /// what is missing of the runs.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be written, or the runs stored here used other files.
    pub fn complete(&self, files: &[Named], parts: &[Part]) -> Result<(), StoreError> {
        self.keep_files(files)?;
        let missing = |part: &&Part| self.part(&part.run_id, &part.binary_hash).is_none();
        parts
            .iter()
            .filter(missing)
            .try_for_each(|part| self.keep(part))
    }

    /// Writes the tables.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be written.
    pub fn write_tables(&self, parts: &[Part], parquet: bool) -> Result<(), StoreError> {
        for table in tables(parts.iter()) {
            if table.name == "decisions" {
                if !table.rows.is_empty() {
                    let path = self.folder.join("decisions.jsonl");
                    Self::replace(&path, |out| write::json_lines(&table, out))?;
                }
                continue;
            }
            if table.rows.is_empty() && WHERE_THERE_ARE_ANY.contains(&table.name) {
                continue;
            }
            let path = self.folder.join(format!("{}.csv", table.name));
            Self::replace(&path, |out| write::csv(&table, out))?;
            #[cfg(feature = "parquet")]
            if parquet && !table.rows.is_empty() {
                let path = self.folder.join(format!("{}.parquet", table.name));
                super::parquet::write(&table, &path).map_err(|what| StoreError::Parquet {
                    path: path.clone(),
                    what,
                })?;
            }
        }
        #[cfg(not(feature = "parquet"))]
        if parquet {
            return Err(StoreError::Parquet {
                path: self.folder.clone(),
                what: "this program was built without Parquet".to_owned(),
            });
        }
        Ok(())
    }

    fn part_path(&self, run_id: &str) -> PathBuf {
        self.folder.join("parts").join(format!("{run_id}.json"))
    }

    /// Writes a file under a temporary name and renames it, so that nobody sees it half written.
    fn replace(
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let partial = path.with_file_name(name);
        let done = File::create(&partial).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        });
        let done = done.and_then(|()| fs::rename(&partial, path));
        done.map_err(|error| at(path, error))
    }
}

fn at(path: &Path, error: io::Error) -> StoreError {
    StoreError::File {
        path: path.to_owned(),
        error,
    }
}
