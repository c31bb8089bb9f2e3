//! The modules of the running kernel.

use std::fs;
use std::path::Path;

/// The names of kernel modules, wherever they are listed.
#[derive(Debug, Clone, Default)]
pub struct Modules {
    loaded: String,
    builtin: String,
    loadable: String,
}

impl Modules {
    /// The modules of the running kernel.
    pub fn read() -> Self {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let release = text(Path::new("/proc/sys/kernel/osrelease"));
        let folder = Path::new("/lib/modules").join(release.trim());
        Self {
            loaded: text(Path::new("/proc/modules")),
            builtin: text(&folder.join("modules.builtin")),
            loadable: text(&folder.join("modules.dep")),
        }
    }

    /// The state of a module: `loaded`, `built in` or `can be loaded`; `None` if it is not
    /// available.
    pub fn find(&self, name: &str) -> Option<&'static str> {
        let in_path = |list: &str| {
            list.lines().any(|line| {
                let file = line.split(':').next().unwrap_or_default();
                let file = file.rsplit('/').next().unwrap_or_default();
                file.split('.')
                    .next()
                    .is_some_and(|stem| stem.replace('-', "_") == name)
            })
        };
        let is_loaded = |line: &str| line.split(' ').next() == Some(name);
        if self.loaded.lines().any(is_loaded) {
            return Some("loaded");
        }
        if in_path(&self.builtin) || Path::new("/sys/module").join(name).exists() {
            return Some("built in");
        }
        in_path(&self.loadable).then_some("can be loaded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_by_name_in_each_list() {
        let modules = Modules {
            loaded: "sch_fq 24576 1 - Live 0x0\n".into(),
            builtin: "kernel/net/sched/sch_tbf.ko\n".into(),
            loadable: "kernel/net/sched/sch_netem_x.ko.zst: kernel/a.ko\nkernel/x/sch-red.ko:\n"
                .into(),
        };
        assert_eq!(modules.find("sch_fq"), Some("loaded"));
        assert_eq!(modules.find("sch_tbf"), Some("built in"));
        assert_eq!(modules.find("sch_red"), Some("can be loaded"));
        assert_eq!(modules.find("no_such_module"), None);
    }
}
