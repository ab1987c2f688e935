--- A stand-in of `vim.lsp.inline_completion` as Neovim 0.12 documents it, for Neovims without.
---
--- It asks 200 ms after the cursor moved, draws, accepts when it has time to, gives `on_accept` the
--- item instead of accepting it, and forgets what it showed then. `range_form` is how ranges look:
--- `rows` as `vim.Range` is now, `positions` as it was in the first releases.

local M = { range_form = 'rows', n_asked = 0 }

local SPACE = vim.api.nvim_create_namespace('nvim.lsp.inline_completion')
local METHOD = 'textDocument/inlineCompletion'
local groups, current, timer = {}, nil, nil

local function hide(bufnr)
  vim.api.nvim_buf_clear_namespace(bufnr, SPACE, 0, -1)
end

local function as_range(range)
  local first, last = range.start, range['end']
  if M.range_form == 'rows' then
    return {
      start_row = first.line,
      start_col = first.character,
      end_row = last.line,
      end_col = last.character,
    }
  end
  return {
    start = { row = first.line, col = first.character },
    end_ = { row = last.line, col = last.character },
  }
end

local function draw(bufnr, item, position)
  hide(bufnr)
  local lines = vim.split(item.insertText, '\n')
  vim.api.nvim_buf_set_extmark(bufnr, SPACE, position.line, position.character, {
    virt_text = { { lines[1], 'ComplHint' } },
    virt_text_pos = 'inline',
    strict = false, -- of an answer that is late
  })
end

local function ask(bufnr)
  for _, client in ipairs(vim.lsp.get_clients({ bufnr = bufnr, method = METHOD })) do
    local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
    params.context = { triggerKind = 2 }
    M.n_asked = M.n_asked + 1
    client:request(METHOD, params, function(_, result)
      if not result or not vim.startswith(vim.api.nvim_get_mode().mode, 'i') then
        return
      end
      local item = result.items[1]
      hide(bufnr)
      current = item
        and {
          client_id = client.id,
          insert_text = item.insertText,
          range = item.range and as_range(item.range),
          command = item.command,
        }
      if item then
        draw(bufnr, item, params.position)
      end
    end, bufnr)
  end
end

local function ask_soon(bufnr)
  if timer then
    timer:stop()
  end
  timer = vim.defer_fn(function()
    ask(bufnr)
  end, 200)
end

function M.enable(enable, filter)
  local bufnr = filter.bufnr
  if groups[bufnr] then
    vim.api.nvim_del_augroup_by_id(groups[bufnr])
    groups[bufnr] = nil
    hide(bufnr)
  end
  if enable then
    groups[bufnr] = vim.api.nvim_create_augroup('stand-in:' .. bufnr, {})
    vim.api.nvim_create_autocmd({ 'InsertEnter', 'CursorMovedI', 'TextChangedP' }, {
      group = groups[bufnr],
      buffer = bufnr,
      callback = function()
        ask_soon(bufnr)
      end,
    })
    vim.api.nvim_create_autocmd('InsertLeave', {
      group = groups[bufnr],
      buffer = bufnr,
      callback = function()
        hide(bufnr)
        current = nil
      end,
    })
  end
end

function M.is_enabled(filter)
  return groups[filter.bufnr] ~= nil
end

function M.select() end

function M.get(given)
  if not current then
    return false
  end
  vim.schedule(function()
    local item = current
    current = nil
    hide(0)
    if item then
      given.on_accept(item)
    end
  end)
  return true
end

return M
