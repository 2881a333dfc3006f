//! The memory that control groups let a process have: a container's limit, or a job's.
//! (Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst)

/// Where the hierarchies are mounted, with the file of a group's limit: version 2, then 1.
const VERSION_2: (&str, &str) = ("/sys/fs/cgroup", "memory.max");
const VERSION_1: (&str, &str) = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");

/// What version 1 has for no limit is the most pages that fit a signed word, in bytes: no machine
/// has as much.
const NO_LIMIT: u64 = 1 << 62;

/// The least limit of the process's groups and of those that they lie in, and its file. `groups` is
/// the text of /proc/self/cgroup. A container without a namespace of its own is told the host's
/// path, and sees its own group at the root: the root is asked, too.
pub(super) fn memory_max(
    groups: &str,
    read: impl Fn(&str) -> Option<String>,
) -> Option<(u64, String)> {
    let files = groups.lines().flat_map(files_of);
    let limits = files.filter_map(|file| Some((bytes(&read(&file)?)?, file)));
    limits.min()
}

/// Files with the limits of one line's group and of those above it, `ID:CONTROLLERS:PATH`.
fn files_of(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => VERSION_2,
        _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
        _ => return Vec::new(),
    };
    let mut folder = root.to_owned();
    let mut files = vec![format!("{folder}/{file}")];
    // `..` is what a process outside its namespace's root has: not below the mount.
    for name in path.split('/').filter(|name| !matches!(*name, "" | "..")) {
        folder = format!("{folder}/{name}");
        files.push(format!("{folder}/{file}"));
    }
    files
}

/// Bytes; `max` is no limit.
fn bytes(text: &str) -> Option<u64> {
    let limit = text.trim().parse().ok()?;
    (limit < NO_LIMIT).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(groups: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        memory_max(groups, |path| {
            let file = files.iter().find(|(name, _)| *name == path)?;
            Some(file.1.to_owned())
        })
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let own = "/sys/fs/cgroup/a.slice/job:1/memory.max";
        let above = "/sys/fs/cgroup/a.slice/memory.max";
        let groups = "0::/a.slice/job:1\n";
        let files = [(own, "4096\n"), (above, "max\n")];
        assert_eq!(found(groups, &files), Some((4096, own.to_owned())));
        let files = [(own, "max\n"), (above, "8192\n")];
        assert_eq!(found(groups, &files), Some((8192, above.to_owned())));
        assert_eq!(found(groups, &[(own, "max\n"), (above, "many\n")]), None);
        assert_eq!(found(groups, &[]), None);
    }

    #[test]
    fn a_container_s_own_root_is_asked() {
        let root = "/sys/fs/cgroup/memory.max";
        for groups in ["0::/", "0::/docker/0123", "0::/../other"] {
            let limit = found(groups, &[(root, "1048576\n")]);
            assert_eq!(limit, Some((1 << 20, root.to_owned())), "{groups}");
        }
        assert_eq!(found("", &[(root, "1048576\n")]), None);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let own = "/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let groups = "5:cpu,cpuacct:/docker/0123\n4:memory,hugetlb:/docker/0123\n0::/\n";
        let none = "9223372036854771712\n";
        let files = [(own, "4096\n"), (root, none)];
        assert_eq!(found(groups, &files), Some((4096, own.to_owned())));
        assert_eq!(found(groups, &[(own, none), (root, none)]), None);
        let other = "5:cpu,cpuacct:/docker/0123\n";
        assert_eq!(found(other, &[(own, "4096\n")]), None);
    }
}
