//! The store on real files and in memory. One module per part of the contract.

mod blocking;
mod dropped;
mod ends;
mod registering;
mod support;
mod verifying;
mod waiting;
