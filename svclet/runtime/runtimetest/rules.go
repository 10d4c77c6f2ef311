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
	// Match says which requests it is for; all if it is nil.
	Match func(request proto.Message) bool
	// Times is how many requests it is for; zero is all of them.
	Times int
	// Delay is the time before anything else is done.
	Delay time.Duration
	// Hang lets a request wait until its caller gives it up.
	Hang bool
	// Gate, if set, lets a request wait until it is closed.
	Gate <-chan struct{}
	// Anyway carries a request out although its caller has given it up, as
	// runtimes do that are in the middle of it.
	Anyway bool
	// Err is the answer; the request is then not carried out.
	Err error
	// Edit changes the answer: leaves something out, or makes it wrong.
	Edit func(answer proto.Message)
}

// Rule adds a rule about a method of CRI ("StartContainer"). Of several that
// match the first one counts.
func (r *Runtime) Rule(method string, rule Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules[method] = append(r.rules[method], &rule)
}

// Obey takes away the rules about a method.
func (r *Runtime) Obey(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rules, method)
}

// Calls counts the requests of a method so far.
func (r *Runtime) Calls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

// rule counts a request and gives the rule that it is under.
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

// hold does what a rule says is to be done before a request is carried out.
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

// notFound is how a runtime says that it does not have something.
func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", what, id)
}
