--- Brackets and quotes that stand behind the cursor, and what a text makes of them. PURE.
---
--- The language server knows this better (it reads triple quotes, and what was open before). Here
--- it is known at once: what is doubtful is nil, and waits for the server.

local M = {}

local CLOSER_OF = { ['('] = ')', ['['] = ']', ['{'] = '}' }
local QUOTES = { ['"'] = true, ["'"] = true, ['`'] = true }
local SPECIAL = '[%(%)%[%]{}"\'`]'

--- Behind the quote that ends a string whose inside begins at `at`; nil if none does in this line.
local function behind_quote(text, at, quote)
  while at <= #text do
    local char = text:sub(at, at)
    if char == quote then
      return at + 1
    elseif char == '\n' then
      return nil
    end
    at = at + (char == '\\' and 2 or 1)
  end
end

local function is_lifetime(text, at)
  return text:sub(at, at) == "'" and text:sub(at - 1, at - 1):find('[&<]') ~= nil
end

--- The closers of what a text opens and does not close, the innermost first; nil if in doubt.
---@param text string
---@return string?
function M.still_open(text)
  local open = ''
  for line in (text .. '\n'):gmatch('([^\n]*)\n') do
    open = open:gsub('["\'`]', '')
    local at = line:find(SPECIAL)
    while at do
      local mark = line:sub(at, at)
      local behind = at + 1
      if is_lifetime(line, at) then
        return nil
      elseif QUOTES[mark] then
        local ended = behind_quote(line, at + 1, mark)
        open = ended and open or mark .. open
        behind = ended or behind
      elseif CLOSER_OF[mark] then
        open = CLOSER_OF[mark] .. open
      else
        open = open:sub((open:find(mark, 1, true) or 0) + 1)
      end
      at = line:find(SPECIAL, behind)
    end
  end
  return open
end

--- Whether closers and blanks are what an editor adds that closes what `typed` opens.
---@param closers string
---@param typed string
function M.are_auto_closed(closers, typed)
  local open, at = M.still_open(typed), 0
  for char in closers:gmatch('[^ \t]') do
    at = open and open:find(char, at + 1, true)
    if not at then
      return false
    end
  end
  return open ~= nil
end

--- The closers of a rest of a line, without blanks, and where each ends; nil if in doubt.
local function tokens_of(closers)
  if closers:find('[^%)%]}"\'` \t]') or closers:find('"""') or closers:find("'''") then
    return nil
  end
  local tokens = {}
  for at = 1, #closers do
    if closers:sub(at, at):find('[^ \t]') then
      table.insert(tokens, { char = closers:sub(at, at), at = at })
    end
  end
  return tokens
end

---@class suture.Written
---@field n_replaced integer bytes of the closers that the text takes the place of
---@field places integer[] where in the text those closers are that it writes, in their order
---@field closers integer[] and where they are among the closers

--- What a text writes of closers that stand behind it; nil if in doubt.
---@param closers string
---@param text string
---@return suture.Written?
function M.written(closers, text)
  local tokens = tokens_of(closers)
  if not tokens then
    return nil
  end
  local places, at, opened = {}, 1, ''
  while at <= #text do
    local wanted = tokens[#places + 1]
    if wanted and QUOTES[wanted.char] then
      -- In a string that the closers end.
      local behind = behind_quote(text, at, wanted.char)
      if not behind then
        if text:find('\n', at, true) then
          return nil
        end
        break
      end
      table.insert(places, behind - 1)
      at, opened = behind, ''
    else
      local found = text:find(SPECIAL, at)
      if not found then
        break
      end
      local mark = text:sub(found, found)
      local is_open = opened:match('.*()%' .. mark)
      at = found + 1
      if QUOTES[mark] then
        local behind = behind_quote(text, at, mark)
        if not behind or is_lifetime(text, found) then
          return nil
        end
        at = behind
      elseif CLOSER_OF[mark] then
        opened = opened .. CLOSER_OF[mark]
      elseif is_open then
        opened = opened:sub(1, is_open - 1)
      elseif wanted and mark == wanted.char then
        table.insert(places, found)
        opened = ''
      elseif wanted and closers:find(mark, 1, true) then
        return nil
      end
    end
  end
  return M.replaced(closers, tokens, places, text)
end

---@return suture.Written
function M.replaced(closers, tokens, places, text)
  local last = tokens[#places]
  local n_replaced = last and last.at or 0
  if last and #places == #tokens and places[#places] < #text then
    n_replaced = #closers -- with the blanks behind them
  end
  local ends = {}
  for i = 1, #places do
    ends[i] = tokens[i].at
  end
  return { n_replaced = n_replaced, places = places, closers = ends }
end

return M
