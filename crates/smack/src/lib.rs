//! The Super Smack language. Never here: anything the other rooms need.
