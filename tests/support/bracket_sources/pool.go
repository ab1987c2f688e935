package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var ErrClosed = errors.New("pool: closed")

type Job func(ctx context.Context) error

type Result struct {
	Name string
	Err  error
	Took time.Duration
}

type Pool struct {
	mu      sync.Mutex
	jobs    chan named
	results map[string]Result
	wg      sync.WaitGroup
	closed  bool
}

type named struct {
	name string
	job  Job
}

// New starts a pool of n workers (at least one).
func New(ctx context.Context, n int) *Pool {
	if n < 1 {
		n = 1
	}
	p := &Pool{jobs: make(chan named, n*2), results: map[string]Result{}}
	for i := 0; i < n; i++ {
		p.wg.Add(1)
		go func(id int) {
			defer p.wg.Done()
			for job := range p.jobs {
				p.run(ctx, job)
			}
		}(i)
	}
	return p
}

func (p *Pool) run(ctx context.Context, j named) {
	start := time.Now()
	err := func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("job %q: %v", j.name, r)
			}
		}()
		return j.job(ctx)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results[j.name] = Result{Name: j.name, Err: err, Took: time.Since(start)}
}

func (p *Pool) Submit(name string, job Job) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.mu.Unlock()
	select {
	case p.jobs <- named{name, job}:
		return nil
	case <-time.After(5 * time.Second):
		return fmt.Errorf("pool: %s waited too long (%d jobs ahead)", name, len(p.jobs))
	}
}

func (p *Pool) Close() []Result {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.jobs)
	p.wg.Wait()
	out := make([]Result, 0, len(p.results))
	for _, name := range []string{"first", "last"} {
		if r, ok := p.results[name]; ok {
			out = append(out, r)
		}
	}
	return out
}
