//! The memory that the process may still allocate.

use std::{fs, path::Path};

use sysinfo::{MemoryRefreshKind, System};

/// A cgroup's files for its limit and use in bytes, and the keys of cached files in its statistics, for versions 2 and 1.
const VERSION_2: [&str; 4] = ["memory.max", "memory.current", "inactive_file ", "active_file "];
const VERSION_1: [&str; 4] =
    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ", "total_active_file "];

/// Returns the bytes that the system can give without swapping, or fewer if a cgroup of the process or the limit on its address space allows
/// fewer; 4 GiB if the system does not report this.
pub(crate) fn available_memory() -> u64 {
    let mut system = System::new();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let free = Some(system.available_memory()).filter(|free| *free > 0).unwrap_or(4 << 30);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_process = ["limits", "status"]
        .map(|name| fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default());
    let left = [left_by_cgroups(&groups, Path::new("/sys/fs/cgroup")), left_by_limit(&of_process)];
    left.into_iter().flatten().fold(free, u64::min)
}

/// Returns the remainder of the process's address space if it is limited (`ulimit -v`), from its limits and its status.
fn left_by_limit([limits, status]: &[String; 2]) -> Option<u64> {
    let number = |text: &str, key| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
    };
    let (limit, kib) = (number(limits, "Max address space")?, number(status, "VmSize:")?);
    Some(limit.saturating_sub(kib * 1024))
}

/// Returns the minimum number of bytes that a limit leaves, over the process's cgroups in `groups` and their ancestors up to the root of each
/// hierarchy below `mount`. A container may see its own group as the root, or under a path that does not exist; then the existing ancestors
/// count.
fn left_by_cgroups(groups: &str, mount: &Path) -> Option<u64> {
    let of_hierarchy = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, names) = if controllers.is_empty() {
            (mount.to_path_buf(), VERSION_2)
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), VERSION_1)
        } else {
            return None;
        };
        let own = root.join(path.trim_start_matches('/'));
        own.ancestors()
            .take_while(|group| group.starts_with(&root))
            .filter_map(|group| left(group, names))
            .min()
    };
    groups.lines().filter_map(of_hierarchy).min()
}

/// Returns the remaining bytes of a cgroup's limit, if it has one. Memory that caches files counts as free, as in the system's figure.
fn left(group: &Path, [limit, used, inactive, active]: [&str; 4]) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    let (limit, used) = (number(limit)?, number(used)?);
    let statistics = read("memory.stat").unwrap_or_default();
    let entry = |key| statistics.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let cached = entry(inactive).unwrap_or(0).saturating_add(entry(active).unwrap_or(0));
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A folder of cgroups.
    struct Mount(TempDir);

    impl Mount {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn group(&self, path: &str, files: &[(&str, String)]) {
            let group = self.0.path().join(path);
            fs::create_dir_all(&group).unwrap();
            files.iter().for_each(|(name, text)| fs::write(group.join(name), text).unwrap());
        }

        fn left(&self, groups: &str) -> Option<u64> {
            left_by_cgroups(groups, self.0.path())
        }
    }

    #[test]
    fn the_lowest_limit_on_the_way_counts() {
        let mount = Mount::new();
        let limit = |limit: &str, used: u64| {
            let stat = format!("anon 1\ninactive_file {}\nactive_file {MIB}\n", 3 * MIB);
            [
                ("memory.max", format!("{limit}\n")),
                ("memory.current", format!("{used}\n")),
                ("memory.stat", stat),
            ]
        };
        mount.group("", &[]);
        mount.group("slurm/job", &limit(&(100 * MIB).to_string(), 34 * MIB));
        mount.group("slurm/job/step", &limit("max", 20 * MIB));
        let groups = "9:name=systemd:/\n0::/slurm/job/step\n";
        assert_eq!(mount.left(groups), Some(70 * MIB), "of the group above; 4 MiB cache files");
        mount.group("slurm/job/step", &limit(&(40 * MIB).to_string(), 20 * MIB));
        assert_eq!(mount.left(groups), Some(24 * MIB));
        mount.group("slurm/job", &limit(&MIB.to_string(), 34 * MIB));
        assert_eq!(mount.left(groups), Some(0));
        assert_eq!(mount.left("0::/"), None);
        assert_eq!(mount.left(""), None);
    }

    #[test]
    fn address_space() {
        let of = |limit: &str| {
            let limits = format!(
                "Limit  Soft Limit  Units\nMax locked memory  1 2 bytes\nMax address space  {limit}  unlimited  bytes\n"
            );
            left_by_limit(&[limits, "VmPeak:\t 9 kB\nVmSize:\t   20 kB\n".to_owned()])
        };
        assert_eq!(["unlimited", "30720", "1"].map(of), [None, Some(10240), Some(0)]);
        assert_eq!(left_by_limit(&[String::new(), String::new()]), None);
    }

    #[test]
    fn version_1_and_containers() {
        let mount = Mount::new();
        let limit = |limit: u64| {
            [
                ("memory.limit_in_bytes", limit.to_string()),
                ("memory.usage_in_bytes", (10 * MIB).to_string()),
                ("memory.stat", format!("inactive_file 7\ntotal_inactive_file {MIB}\n")),
            ]
        };
        mount.group("memory", &limit(9_223_372_036_854_771_712));
        mount.group("memory/job", &limit(50 * MIB));
        let groups = |path: &str| format!("5:cpu,cpuacct:/x\n4:memory:{path}\n0::/\n");
        assert_eq!(mount.left(&groups("/job/step")), Some(41 * MIB));
        // A container sees its own group as the root of the hierarchy, but its path as outside the container.
        mount.group("memory", &limit(30 * MIB));
        assert_eq!(mount.left(&groups("/docker/0123")), Some(21 * MIB));
    }

    #[test]
    fn this_system_tells() {
        assert!(available_memory() > 0);
    }
}
