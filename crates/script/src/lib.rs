//! LuaJIT and the sysbench API. Never here: anything the other rooms need.
