//! Guests of other roots than the default one: container images and directories, built here and
//! booted.

mod attached;
mod command_line;
mod container;
mod directory;
mod fixture;
mod times;
