//! The command line as its users meet it: arguments in; files, text and an exit code out.

mod bad_input;
mod demo;
mod devices;
mod pca;
mod support;
