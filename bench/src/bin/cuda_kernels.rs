//! Writes the CUDA kernels as PTX into a folder, for machines with NVIDIA's driver but without NVRTC. Programs that use teatime ship the
//! folder as `kernels` next to the executable.

use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("usage: cuda_kernels FOLDER")?;
    teatime::write_cuda_kernels(folder)?;
    Ok(())
}
