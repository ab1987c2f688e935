require "json"
require "time"

module Mailer
  Message = Struct.new(:to, :subject, :body, :tries, keyword_init: true) do
    def to_json(*args)
      to_h.merge(tries: tries || 0).to_json(*args)
    end
  end

  class Queue
    MAX_TRIES = 3

    attr_reader :failed

    def initialize(path, clock: -> { Time.now })
      @path = path
      @clock = clock
      @messages = []
      @failed = {}
      load_all if File.exist?(path)
    end

    def push(to, subject, body = "")
      raise ArgumentError, "no address" if to.to_s.strip.empty?

      @messages << Message.new(to: to, subject: subject, body: body, tries: 0)
      save
      @messages.size
    end

    def deliver(limit: 10)
      batch = @messages.shift(limit)
      batch.each do |message|
        begin
          yield message
        rescue IOError => e
          message.tries += 1
          if message.tries >= MAX_TRIES
            @failed[message.to] = "#{e.message} (#{message.tries} tries)"
          else
            @messages.push(message)
          end
        end
      end
      save
      batch.length - @failed.length
    end

    def summary
      by_host = @messages.group_by { |m| m.to.split("@").last }
      by_host.map { |host, list| [host, list.map(&:subject).uniq] }.to_h
    end

    private

    def load_all
      rows = JSON.parse(File.read(@path), symbolize_names: true)
      rows.each { |row| @messages << Message.new(**row.slice(:to, :subject, :body, :tries)) }
    end

    def save
      File.write(@path, JSON.pretty_generate(@messages.map(&:to_h)))
    end
  end
end
