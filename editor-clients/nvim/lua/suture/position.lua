--- Places in a line, in bytes here and in the units of the language server there. PURE.

local M = {}

--- How many units of an encoding stand before a byte of a line; both counted from 0.
---@param line string
---@param byte integer
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return integer
function M.units(line, byte, encoding)
  byte = math.min(byte, #line)
  if encoding == 'utf-8' then
    return byte
  end
  local n = 0
  for at = 1, byte do
    n = n + M.width(line:byte(at), encoding)
  end
  return n
end

--- How many bytes of a line stand before a unit; one inside a character is before it.
---@param line string
---@param units integer
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return integer
function M.byte(line, units, encoding)
  if encoding == 'utf-8' then
    units = math.min(units, #line)
    while units > 0 and units < #line and M.width(line:byte(units + 1), encoding) == 0 do
      units = units - 1
    end
    return units
  end
  local n = 0
  for at = 1, #line do
    local width = M.width(line:byte(at), encoding)
    if width > 0 and n + width > units then
      return at - 1
    end
    n = n + width
  end
  return #line
end

--- The units that a character takes which begins with this byte; 0 where none does.
---@param byte integer
---@param encoding 'utf-8'|'utf-16'|'utf-32'
---@return integer
function M.width(byte, encoding)
  if byte >= 0x80 and byte < 0xC0 then
    return 0
  end
  return encoding == 'utf-16' and byte >= 0xF0 and 2 or 1
end

return M
