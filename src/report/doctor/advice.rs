//! How to get an adapter: the command of this system, and the variables that hide drivers.

use serde::Serialize;

/// Variables that decide which drivers the Vulkan loader, and Mesa below it, show. The last two say
/// where the loader looks for the rest.
pub const DRIVER_VARIABLES: [&str; 8] = [
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_ADD_DRIVER_FILES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "MESA_VK_DEVICE_SELECT",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
];

/// The drivers that there are: of these the first that is set counts, empty or not, and the other
/// is not read (`read_data_files_in_search_paths` of the loader; 1.3.239 of Debian 12 finds no
/// driver where it is empty).
const ONLY_FILES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// Hide drivers by their names; empty ones are as not set.
const BY_NAME: [&str; 2] = ["VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE"];

/// Folders to look in, and that which systems install into: desktops set the variables, too, and
/// do no harm. Empty ones are as not set.
const FOLDERS: [(&str, &[&str]); 2] = [
    ("XDG_DATA_DIRS", &["/usr/share"]),
    ("XDG_CONFIG_DIRS", &["/etc/xdg"]),
];

/// What shows drivers again that variables may hide: comes before any installation, which changes
/// nothing while they are set.
pub fn unset_command(variables: &[Variable]) -> Option<String> {
    let only = variables
        .iter()
        .filter(|set| ONLY_FILES.contains(&set.name));
    let first = ONLY_FILES
        .iter()
        .find(|name| only.clone().any(|set| set.name == **name));
    let hides = |set: &&Variable| match set.name {
        // The other one counts once the first is gone.
        name if ONLY_FILES.contains(&name) => first == Some(&name) || set.shows_nothing(),
        name if BY_NAME.contains(&name) => !set.value.is_empty(),
        _ => set.leads_elsewhere(),
    };
    let names: Vec<&str> = variables.iter().filter(hides).map(|set| set.name).collect();
    (!names.is_empty()).then(|| format!("unset {}", names.join(" ")))
}

/// A variable that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    pub name: &'static str,
    pub value: String,
    /// Files that it names and that are not there.
    pub missing: Vec<String>,
}

impl Variable {
    /// A variable with its value; `is_there` says whether a file exists.
    pub fn new(name: &'static str, value: String, is_there: impl Fn(&str) -> bool) -> Variable {
        let names_files = name.ends_with("_FILES") || name.ends_with("_FILENAMES");
        let separator = if cfg!(windows) { ';' } else { ':' };
        let files = value.split(separator).filter(|file| !file.is_empty());
        let missing = files.filter(|file| names_files && !is_there(file));
        Variable {
            name,
            missing: missing.map(str::to_owned).collect(),
            value,
        }
    }

    /// It says where to look, for much more than drivers: of no interest where one was found.
    pub fn is_of_folders(&self) -> bool {
        FOLDERS.iter().any(|(name, _)| *name == self.name)
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        let separator = if cfg!(windows) { ';' } else { ':' };
        self.value.split(separator).filter(|part| !part.is_empty())
    }

    /// It names no file that is there.
    fn shows_nothing(&self) -> bool {
        self.parts().count() == self.missing.len()
    }

    /// The folders that it names are others than the system's.
    fn leads_elsewhere(&self) -> bool {
        let known = FOLDERS.iter().find(|(name, _)| *name == self.name);
        let is_usual = |part: &str| {
            let part = part.trim_end_matches('/');
            known.is_some_and(|(_, usual)| usual.contains(&part))
        };
        known.is_some() && !self.value.is_empty() && !self.parts().any(is_usual)
    }
}

/// Distributions by their `ID` in /etc/os-release, and what installs Mesa's software adapter.
const COMMANDS: [(&[&str], &str); 4] = [
    (&["debian", "ubuntu"], "apt-get install mesa-vulkan-drivers"),
    (
        &["fedora", "rhel", "centos"],
        "dnf install mesa-vulkan-drivers",
    ),
    (&["arch"], "pacman -S vulkan-swrast"),
    (&["alpine"], "apk add mesa-vulkan-swrast"),
];

/// The command that installs a software adapter, or what to look for. `system` is
/// `std::env::consts::OS`, `os_release` the text of /etc/os-release.
pub fn install_command(system: &str, os_release: Option<&str>) -> String {
    match system {
        "macos" => return "nothing to install: Metal is part of macOS".to_owned(),
        "windows" => return "nothing to install: DX12 has WARP, an adapter in software".to_owned(),
        _ => {}
    }
    let text = os_release.unwrap_or_default();
    // The distribution itself, then those it is like, nearest first.
    let own = values(text, "ID").chain(values(text, "ID_LIKE"));
    for id in own {
        let known = COMMANDS.iter().find(|(ids, _)| ids.contains(&id));
        if let Some((_, command)) = known {
            return (*command).to_owned();
        }
    }
    "install Mesa's software Vulkan driver (lavapipe, also called swrast: libvulkan_lvp.so and \
     lvp_icd.json) and the Vulkan loader (libvulkan.so.1)"
        .to_owned()
}

/// The words of a key of os-release, quoted or not.
fn values<'a>(text: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let line = text.lines().find_map(|line| {
        let (name, value) = line.trim().split_once('=')?;
        (name == key).then_some(value)
    });
    let value = line.unwrap_or_default().trim();
    value.trim_matches(['"', '\'']).split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_command() {
        for (os_release, command) in [
            ("NAME=x\nID=debian\n", "apt-get install mesa-vulkan-drivers"),
            (
                "ID=ubuntu\nID_LIKE=debian",
                "apt-get install mesa-vulkan-drivers",
            ),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"",
                "apt-get install mesa-vulkan-drivers",
            ),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"",
                "dnf install mesa-vulkan-drivers",
            ),
            ("ID='fedora'", "dnf install mesa-vulkan-drivers"),
            ("ID=manjaro\nID_LIKE=arch", "pacman -S vulkan-swrast"),
            ("ID=alpine", "apk add mesa-vulkan-swrast"),
        ] {
            assert_eq!(install_command("linux", Some(os_release)), command);
        }
        for unknown in [None, Some(""), Some("ID=nixos"), Some("VERSION_ID=debian")] {
            let advice = install_command("linux", unknown);
            assert!(
                advice.contains("lavapipe") && advice.contains("libvulkan"),
                "{advice}"
            );
        }
        assert!(install_command("macos", None).contains("Metal"));
        assert!(install_command("windows", None).contains("WARP"));
    }

    #[test]
    fn variables_that_hide_drivers_are_unset() {
        let set = |name, value: &str| Variable::new(name, value.to_owned(), |_| true);
        let found = [
            set("VK_ICD_FILENAMES", "/gone.json"),
            set("MESA_VK_DEVICE_SELECT", "list"),
            set("VK_ADD_DRIVER_FILES", "/more.json"),
            set("VK_LOADER_DRIVERS_SELECT", ""),
            set("VK_LOADER_DRIVERS_DISABLE", "*"),
        ];
        let command = "unset VK_ICD_FILENAMES VK_LOADER_DRIVERS_DISABLE";
        assert_eq!(unset_command(&found).as_deref(), Some(command));
        assert_eq!(unset_command(&found[1..4]), None);
    }

    #[test]
    fn of_two_lists_of_drivers_the_first_that_is_set_counts() {
        let is_there = |file: &str| file == "/here.json";
        let set = |name, value: &str| Variable::new(name, value.to_owned(), is_there);
        let unset = |variables: &[Variable]| unset_command(variables).unwrap_or_default();
        let [newer, older] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
        for hiding in ["", ":", "/here.json", "/gone.json"] {
            for name in [newer, older] {
                assert_eq!(
                    unset(&[set(name, hiding)]),
                    format!("unset {name}"),
                    "{hiding}"
                );
            }
            let both = [set(newer, hiding), set(older, "/here.json")];
            assert_eq!(
                unset(&both),
                "unset VK_DRIVER_FILES",
                "the older one is well"
            );
            let both = [set(newer, hiding), set(older, "")];
            assert_eq!(unset(&both), "unset VK_DRIVER_FILES VK_ICD_FILENAMES");
        }
    }

    #[test]
    fn folders_are_named_where_they_are_not_the_systems() {
        let unset =
            |name, value: &str| unset_command(&[Variable::new(name, value.to_owned(), |_| true)]);
        let data = |value: &str| unset("XDG_DATA_DIRS", value);
        for hiding in ["/n", "/usr/local/share"] {
            assert_eq!(data(hiding).as_deref(), Some("unset XDG_DATA_DIRS"));
        }
        assert_eq!(data(""), None);
        assert_eq!(
            data("/usr/share/gnome:/usr/share/"),
            None,
            "as a desktop sets it"
        );
        let config = |value: &str| unset("XDG_CONFIG_DIRS", value);
        assert_eq!(config("/n").as_deref(), Some("unset XDG_CONFIG_DIRS"));
        assert_eq!(config("/etc/xdg"), None);
        let is_of_folders = |name| Variable::new(name, String::new(), |_| true).is_of_folders();
        assert!(is_of_folders("XDG_DATA_DIRS") && !is_of_folders("VK_DRIVER_FILES"));
    }

    #[test]
    fn a_variable_names_the_files_that_are_missing() {
        let is_there = |file: &str| file == "/here.json";
        let separator = if cfg!(windows) { ';' } else { ':' };
        let value = format!("/here.json{separator}/gone.json");
        let files = Variable::new("VK_DRIVER_FILES", value.clone(), is_there);
        assert_eq!(files.missing, ["/gone.json"]);
        let other = Variable::new("MESA_VK_DEVICE_SELECT", value, is_there);
        assert!(other.missing.is_empty());
    }
}
