;;; suture.el --- Code completion by Suture, in lsp-mode and Eglot  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0
;; Package-Requires: ((emacs "28.1"))

;;; Commentary:

;; Load this file; docs/editors/emacs.md says what comes of it.  It does
;; nothing until lsp-mode or Eglot is loaded, and needs neither.

;;; Code:

(require 'cl-lib)

(defgroup suture nil
  "Code completion by Suture."
  :group 'tools)

(defcustom suture-command '("suture" "lsp")
  "The language server: a program and its arguments."
  :type '(repeat string))

(defcustom suture-options nil
  "What is not as Suture has it by default, as a property list.
The options are those of docs/lsp.md; lists are vectors, and false
is :json-false: (:maxTokens 32 :exclude [\"*.csv\"] :prefetch :json-false)."
  :type 'plist)

(defun suture--tell (kind message)
  "Say in the echo area what is wrong, once: MESSAGE, of a status of KIND."
  (when (member kind '("Warning" "Error"))
    (message "Suture: %s" message)))

;; lsp-mode, which shows inline completions.

(defvar lsp-inline-completion-idle-delay)
(declare-function lsp-register-client "ext:lsp-mode")
(declare-function lsp-stdio-connection "ext:lsp-mode")
(declare-function make-lsp-client "ext:lsp-mode")
(declare-function lsp--workspace-server-capabilities "ext:lsp-mode")
(declare-function lsp:set-server-capabilities-inline-completion-provider?
                  "ext:lsp-protocol")

(defun suture--lsp-status (_workspace status)
  "Take STATUS, a hash table or a property list."
  (if (hash-table-p status)
      (suture--tell (gethash "kind" status) (gethash "message" status))
    (suture--tell (plist-get status :kind) (plist-get status :message))))

(defun suture--lsp-initialized (workspace)
  "Say that WORKSPACE completes inline: as a property list, {} is nothing."
  (when (fboundp 'lsp:set-server-capabilities-inline-completion-provider?)
    (lsp:set-server-capabilities-inline-completion-provider?
     (lsp--workspace-server-capabilities workspace) t)))

(defun suture--lsp-register ()
  "Add Suture to the language servers of every buffer that lsp-mode manages."
  (let ((handlers (make-hash-table :test 'equal)))
    (puthash "suture/status" #'suture--lsp-status handlers)
    (lsp-register-client
     (make-lsp-client
      :server-id 'suture
      :new-connection (lsp-stdio-connection (lambda () suture-command))
      :activation-fn (lambda (&rest _) t)
      :add-on? t
      :priority -2
      :completion-in-comments? t
      :initialization-options (lambda () (list :suture suture-options))
      :initialized-fn #'suture--lsp-initialized
      :notification-handlers handlers))))

(with-eval-after-load 'lsp-mode
  (suture--lsp-register))

(with-eval-after-load 'lsp-inline-completion
  ;; Two seconds by default.  Suture itself waits for the next key.
  (setq lsp-inline-completion-idle-delay 0.1))

;; Eglot, which has one server for a buffer and no inline completions.

(defun suture-eglot (&rest _)
  "What Eglot starts for a mode that `eglot-server-programs' gives to Suture."
  (append suture-command
          `(:initializationOptions (:suture (:completion t ,@suture-options)))))

(with-eval-after-load 'eglot
  (cl-defmethod eglot-handle-notification
    (_server (_method (eql suture/status)) &key kind message &allow-other-keys)
    (suture--tell kind message)))

(provide 'suture)

;;; suture.el ends here
