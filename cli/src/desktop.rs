//! Keeping Mesa's Vulkan from looking for a desktop where there is none.

/// Starts the program anew with a variable that leaves out the layer of Mesa that asks the desktop which GPU to prefer:
/// where there is no desktop, it prints that as an error whenever devices are looked for. Goes on where that fails.
///
/// A program can set a variable of its own only while no other thread runs, which Rust cannot know.
#[cfg(target_os = "linux")]
pub(crate) fn leave_out() {
    use std::{env, os::unix::process::CommandExt, path::Path, process::Command};

    let desktop = env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).is_absolute());
    // The first is what this sets, the other what the layer is for.
    let set = ["NODEVICE_SELECT", "MESA_VK_DEVICE_SELECT"].iter().any(|name| env::var_os(name).is_some());
    if desktop || set {
        return;
    }
    let mut words = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), words.next()) else { return };
    let _failed = Command::new(program).arg0(name).args(words).env("NODEVICE_SELECT", "1").exec();
}

/// Elsewhere there is no such layer.
#[cfg(not(target_os = "linux"))]
pub(crate) fn leave_out() {}
