--- A component of lualine: `sections = { lualine_x = { 'suture' } }`. Drawn anew when it changes.

local Component = require('lualine.component'):extend()

function Component:init(options)
  Component.super.init(self, options)
  vim.api.nvim_create_autocmd('User', {
    group = vim.api.nvim_create_augroup('suture.lualine', {}),
    pattern = 'SutureStatus',
    callback = vim.schedule_wrap(function()
      require('lualine').refresh({ place = { 'statusline' } })
    end),
  })
end

function Component:update_status()
  -- A statusline reads `%` as the start of an item.
  return (require('suture').status():gsub('%%', '%%%%'))
end

return Component
