package runtimetest

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Rule changes how requests of one method are answered.
type Rule struct {
	// Match reports whether the rule applies to a request; nil applies it to all.
	Match func(request proto.Message) bool
	// Times is how many requests the rule applies to; zero means all.
	Times int
	// Delay is the time before the request is handled.
	Delay time.Duration
	// Hang makes a request wait until its client cancels it.
	Hang bool
	// Gate, if set, makes a request wait until the channel is closed.
	Gate <-chan struct{}
	// Anyway executes a request although its client has cancelled it, as runtimes
	// do with a request that they have begun.
	Anyway bool
	// Err is the answer; the request is then not executed.
	Err error
	// Edit changes the answer.
	Edit func(answer proto.Message)
}

// Rule adds a rule for a method of CRI ("StartContainer"). The first rule that
// matches a request applies.
func (r *Runtime) Rule(method string, rule Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules[method] = append(r.rules[method], &rule)
}

// RemoveRules removes the rules for a method.
func (r *Runtime) RemoveRules(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rules, method)
}

// Calls returns how many requests of a method there have been.
func (r *Runtime) Calls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

// rule counts a request and returns the rule that applies to it.
func (r *Runtime) rule(method string, request any) Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[method]++
	message, _ := request.(proto.Message)
	rules := r.rules[method]
	for i, rule := range rules {
		if rule.Match != nil && (message == nil || !rule.Match(message)) {
			continue
		}
		found := *rule
		if rule.Times == 1 {
			r.rules[method] = append(append([]*Rule{}, rules[:i]...), rules[i+1:]...)
		} else if rule.Times > 1 {
			rule.Times--
		}
		return found
	}
	return Rule{}
}

// hold delays a request as its rule requires.
func (r *Runtime) hold(ctx context.Context, rule Rule) error {
	if rule.Delay > 0 {
		timer := r.options.Clock.NewTimer(rule.Delay)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if rule.Hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	if rule.Gate != nil {
		if rule.Anyway {
			<-rule.Gate
			return rule.Err
		}
		select {
		case <-rule.Gate:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return rule.Err
}

func (r *Runtime) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	rule := r.rule(path.Base(info.FullMethod), request)
	if err := r.hold(ctx, rule); err != nil {
		return nil, err
	}
	answer, err := handle(ctx, request)
	if message, ok := answer.(proto.Message); ok && err == nil && rule.Edit != nil {
		message = proto.Clone(message)
		rule.Edit(message)
		return message, nil
	}
	return answer, err
}

func (r *Runtime) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := r.hold(stream.Context(), r.rule(path.Base(info.FullMethod), nil)); err != nil {
		return err
	}
	return handle(server, stream)
}

// notFound returns the error of a runtime for an object that does not exist.
func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", what, id)
}
