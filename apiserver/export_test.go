package apiserver

import (
	"context"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/record"
)

// HoldExamination lets the examination of the stored objects wait until the channel is closed.
func (s *Server) HoldExamination(until <-chan struct{}) {
	keeper := s.recorded.keeper
	losses := keeper.Losses
	keeper.Losses = func(ctx context.Context, last release.Release) ([]record.Loss, error) {
		select {
		case <-until:
			return losses(ctx, last)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
