-- What there is before anything is loaded: the command, keys to map, and a start after the user's
-- own settings.

if vim.g.loaded_suture then
  return
end
vim.g.loaded_suture = true

if vim.fn.has('nvim-0.10') == 0 then
  vim.notify('suture: this plugin needs Neovim 0.10 or newer', vim.log.levels.ERROR)
  return
end

vim.api.nvim_create_user_command('Suture', function(given)
  require('suture.commands').run(given.fargs)
end, {
  nargs = '*',
  desc = 'Completions by Suture',
  complete = function(_, line)
    return require('suture.commands').complete(line)
  end,
})

require('suture.plugs').define()

local function begin()
  require('suture').begin()
end

if vim.v.vim_did_enter == 1 then
  vim.schedule(begin) -- `setup` may come in the same breath
else
  vim.api.nvim_create_autocmd('VimEnter', { once = true, callback = begin })
end
