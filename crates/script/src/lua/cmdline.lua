-- sysbench.cmdline: what scripts declare, their options and commands.
local native = ...
local sysbench = _G.sysbench
local cmdline = sysbench.cmdline

-- Entry `at` of a command's table {function, PARALLEL_COMMAND}.
local function part(name, at)
   local commands = cmdline.commands
   if type(commands) ~= "table" or type(commands[name]) ~= "table" then return nil end
   return commands[name][at]
end

function cmdline.command_defined(name) return part(name, 1) ~= nil end

function cmdline.command_parallel(name)
   return cmdline.command_defined(name) and part(name, 2) == cmdline.PARALLEL_COMMAND
end

function cmdline.call_command(name)
   if not cmdline.command_defined(name) then return false end
   local answer = part(name, 1)()
   return answer == nil or (answer and true or false)
end

local function kind_of(option)
   if option[3] ~= nil then return option[3] end
   local default = option[2]
   if type(default) == "boolean" then return cmdline.ARG_BOOL end
   if type(default) == "number" then
      return cmdline.ARG_DOUBLE
   end
   if type(default) == "table" then return cmdline.ARG_LIST end
   return cmdline.ARG_STRING
end

-- What the script declares, for the command line: name, help, default as text, kind. Nothing where it declares no
-- options at all, as scripts of old.
function native.declared_options()
   local options = cmdline.options
   if options == nil then return nil end
   if type(options) ~= "table" then error("wrong type for sysbench.cmdline.options: " .. type(options)) end
   local declared = {}
   for name, option in pairs(options) do
      if type(name) ~= "string" or type(option) ~= "table" then
         error("wrong table structure in sysbench.cmdline.options")
      end
      if option[1] == nil then error("nil description for option " .. name) end
      local default = option[2]
      if type(default) == "boolean" then default = default and "on" or "off" end
      if type(default) == "table" then default = table.concat(default, ",") end
      if type(default) == "number" then default = tostring(default) end
      declared[#declared + 1] = { name = name, help = option[1], default = default, kind = kind_of(option) }
   end
   table.sort(declared, function(a, b) return a.name < b.name end)
   return declared
end

-- Functions that check or change the value of an option.
function native.validate_option(name, value)
   local option = (cmdline.options or {})[name]
   if type(option) == "table" and option[4] ~= nil then return option[4](value) end
   return value
end

function cmdline.read_cmdline_options() return true end

function cmdline.print_test_options()
   io.write(native.test_options, "\n")
end
