--- What a user sets: the options of `suture lsp` by their names, and those of this plugin.
---
--- A value that does not fit leaves its default in force, and is told once.

local M = {}

---@class suture.Options
---@field cmd string[] the command that starts the language server
---@field filetypes table<string, boolean> false: nothing of such a buffer is sent; `*`: all others
---@field keys table<string, string|false> keys while a suggestion is shown; `next` always
---@field popup 'hide'|'beside' whether a suggestion is shown beside the popup menu
---@field builtin boolean let vim.lsp.inline_completion draw, where there is one
---@field section table what is sent to the language server: only what the user has set

local KEYS = { 'accept', 'accept_word', 'accept_line', 'dismiss', 'next' }

local DEFAULTS = {
  cmd = { 'suture', 'lsp' },
  filetypes = {},
  keys = {
    accept = '<Tab>',
    accept_word = '<M-w>',
    accept_line = '<M-l>',
    dismiss = '<C-]>',
    next = '<M-]>',
  },
  popup = 'hide',
  builtin = true,
}

local function is_type(kind)
  return function(value)
    return type(value) == kind or ('expected a %s, got a %s'):format(kind, type(value))
  end
end

local function is_integer(first, last)
  return function(value)
    local fits = type(value) == 'number' and value % 1 == 0 and value >= first and value <= last
    return fits or ('expected a whole number from %d to %d'):format(first, last)
  end
end

local function is_one_of(...)
  local choices = { ... }
  return function(value)
    return vim.tbl_contains(choices, value)
      or ('expected one of "%s"'):format(table.concat(choices, '", "'))
  end
end

local function either(one, other)
  return function(value)
    local fits = one(value)
    if fits == true then
      return true
    end
    local also = other(value)
    return also == true or ('%s, or %s'):format(fits, also)
  end
end

local function is_list_of_strings(value)
  if type(value) ~= 'table' then
    return 'expected a list of strings'
  end
  for key, one in pairs(value) do
    if type(key) ~= 'number' or type(one) ~= 'string' then
      return 'expected a list of strings'
    end
  end
  return true
end

local function is_command(value)
  if is_list_of_strings(value) ~= true or #value == 0 then
    return 'expected a command as a list: { "suture", "lsp" }'
  end
  return true
end

local function is_switches(value)
  if type(value) ~= 'table' then
    return 'expected a table of names: { markdown = false }'
  end
  for key, one in pairs(value) do
    if type(key) ~= 'string' or type(one) ~= 'boolean' then
      return 'expected a table of names: { markdown = false }'
    end
  end
  return true
end

local function is_url(value)
  if type(value) ~= 'string' or not value:find('^https?://') then
    return 'expected a URL that begins with http:// or https://'
  end
  return true
end

local function is_key(value)
  if value == false then
    return true
  end
  local is_named = type(value) == 'string' and value ~= ''
  -- A name that Neovim does not know stays as it is written.
  local is_known = is_named and not vim.keycode((value:gsub('<[lL][tT]>', ''))):find('<%a')
  return is_known or 'expected a key such as "<Tab>", or false'
end

-- What is a table here is a section.
local OWN = {
  cmd = is_command,
  filetypes = is_switches,
  keys = {},
  popup = is_one_of('hide', 'beside'),
  builtin = is_type('boolean'),
}
for _, name in ipairs(KEYS) do
  OWN.keys[name] = is_key
end

local SENT = {
  enable = is_type('boolean'),
  languages = is_switches,
  exclude = is_list_of_strings,
  multiline = is_type('boolean'),
  maxTokens = is_integer(1, 2048),
  debounceMs = either(is_one_of('auto'), is_integer(0, 10000)),
  prefetch = is_type('boolean'),
  completion = is_type('boolean'),
  stats = is_type('boolean'),
  -- The server knows which there are; it tells in its status what it does not know.
  healing = is_type('string'),
  giveBack = either(is_one_of('stable'), is_integer(1, 8)),
  layout = is_type('string'),
  server = {
    url = is_url,
    apiKeyFile = is_type('string'),
    autostart = is_type('boolean'),
    idleMinutes = is_integer(1, 10080),
  },
  context = {
    openFiles = is_type('boolean'),
    neighbours = is_type('boolean'),
    maxChunks = is_integer(0, 256),
  },
}

--- Put into `into` what fits of `given`, and into `problems` why the rest does not.
local function take(into, given, rules, path, problems)
  for name, value in pairs(given) do
    local rule, whole = rules[name], path .. tostring(name)
    if rule == nil then
      local names = vim.tbl_keys(rules)
      table.sort(names)
      table.insert(
        problems,
        ('`%s` is no option; there are %s'):format(whole, table.concat(names, ', '))
      )
    elseif type(rule) == 'function' then
      local fits = rule(value)
      if fits == true then
        into[name] = value
      else
        table.insert(problems, ('`%s`: %s'):format(whole, fits))
      end
    elseif type(value) ~= 'table' then
      table.insert(problems, ('`%s`: expected a table'):format(whole))
    else
      into[name] = into[name] or {}
      take(into[name], value, rule, whole .. '.', problems)
    end
  end
end

--- An empty Lua table would be sent as a list.
local function without_empty(section)
  for name, value in pairs(section) do
    if type(value) == 'table' and next(value) == nil then
      section[name] = nil
    end
  end
  return section
end

--- The options that a user gave, the default where there is none, and what is wrong with them.
---@param given any
---@return suture.Options, string[]
function M.read(given)
  local options, section, problems = vim.deepcopy(DEFAULTS), {}, {}
  if type(given) ~= 'table' then
    given, problems = {}, given == nil and {} or { 'the options must be a table' }
  end
  local own, sent = {}, {}
  for name, value in pairs(given) do
    (SENT[name] and sent or own)[name] = value
  end
  local rules = OWN
  for name in pairs(own) do
    if OWN[name] == nil then
      rules = vim.tbl_extend('error', OWN, SENT) -- to name them all
    end
  end
  take(options, own, rules, '', problems)
  take(section, sent, SENT, '', problems)
  options.section = without_empty(section)
  table.sort(problems)
  return options, problems
end

--- Whether anything is suggested in buffers of a filetype.
---@param options suture.Options
---@param filetype string
function M.has_filetype(options, filetype)
  local wanted = options.filetypes[filetype]
  if wanted == nil then
    wanted = options.filetypes['*']
  end
  return wanted ~= false
end

return M
