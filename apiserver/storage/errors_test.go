package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

func TestErrorsAreTranslatedToStatuses(t *testing.T) {
	for _, test := range []struct {
		rule string
		err  error
		// code is 0 where the error stays as it is.
		code    int32
		message string
	}{
		{"no error stays none", nil, 0, ""},
		{"a storage error is the registry's to translate", storage.NewKeyNotFoundError("a", 1), 0, ""},
		{"an API status stays", apierrors.NewBadRequest("no"), 0, ""},
		{"an unknown error stays", errors.New("strange"), 0, ""},
		{"a creation with a version is the client's fault", storage.ErrResourceVersionSetOnCreate, http.StatusBadRequest, "resourceVersion should not be set"},
		{"etcd refuses the size", rpctypes.ErrRequestTooLarge, http.StatusRequestEntityTooLarge, "larger than etcd accepts"},
		{"etcd's client refuses the size", status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)"), http.StatusRequestEntityTooLarge, "larger than etcd accepts"},
		{"etcd is out of space, which is not a matter of size", rpctypes.ErrNoSpace, 0, ""},
		{"nothing listens", status.Error(codes.Unavailable, "connection refused"), http.StatusServiceUnavailable, "etcd does not answer: "},
		{
			"a member of etcd ends", status.Error(codes.Unknown, "unexpected HTTP status code received from server: 200 (OK); malformed header: missing HTTP content-type"),
			http.StatusServiceUnavailable, "etcd does not answer: ",
		},
		{"there is no leader", rpctypes.ErrNoLeader, http.StatusServiceUnavailable, "no leader"},
		{"etcd gives up", rpctypes.ErrTimeout, http.StatusGatewayTimeout, "etcd did not answer in time"},
		{"the request's time is over", fmt.Errorf("get: %w", context.DeadlineExceeded), http.StatusGatewayTimeout, "etcd did not answer in time"},
		{"gRPC reports that the request's time is over", status.Error(codes.DeadlineExceeded, "late"), http.StatusGatewayTimeout, "late"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := NewWithT(t)
			got := translate(test.err)
			if test.code == 0 {
				if test.err == nil {
					g.Expect(got).NotTo(HaveOccurred())
				} else {
					g.Expect(got).To(BeIdenticalTo(test.err))
				}
				return
			}
			var answered apierrors.APIStatus
			g.Expect(errors.As(got, &answered)).To(BeTrue())
			g.Expect(answered.Status().Code).To(Equal(test.code))
			g.Expect(answered.Status().Message).To(ContainSubstring(test.message))
		})
	}
}

func TestRequestsToEtcdEndBeforeTheClientsRequest(t *testing.T) {
	for _, test := range []struct {
		rule       string
		has, gives time.Duration
	}{
		{"a second less", time.Minute, 59 * time.Second},
		{"a tenth less if it has little", 2 * time.Second, 1800 * time.Millisecond},
	} {
		t.Run(test.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.has)
				defer cancel()
				ctx, cancel = shorten(ctx)
				defer cancel()
				deadline, ok := ctx.Deadline()
				if !ok || time.Until(deadline) != test.gives {
					t.Errorf("etcd is given %s, want %s", time.Until(deadline), test.gives)
				}
			})
		})
	}
	t.Run("one without a deadline has none", func(t *testing.T) {
		ctx, cancel := shorten(t.Context())
		defer cancel()
		_, ok := ctx.Deadline()
		NewWithT(t).Expect(ok).To(BeFalse())
	})
}
