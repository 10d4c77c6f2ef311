package monitoring

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// series are what an alert sees for two hours, one value each minute, in the notation of
// Prometheus' tests of rules. It fires with those of fires, and also with those of more; it
// does not with those of quiet, nor with those of moreQuiet.
type series struct {
	fires, quiet    string
	more, moreQuiet []string
}

// alertCases has for each alert series with which it fires, and series of a cluster in
// which all is well.
var alertCases = map[string]series{
	"SvcAPIServerAbsent": {
		fires: `up{job="svc"} 0x120`,
		more:  []string{`kubernetes_build_info{git_version="v1.28.0"} 1x120`}, // of svclet
		quiet: `apiserver_request_total{code="200",verb="GET"} 0+90x120`,
	},
	"SvcAPIServerErrors": {
		fires: `
			apiserver_request_total{code="200",verb="GET"} 0+90x120
			apiserver_request_total{code="504",verb="GET"} 0+10x120`,
		quiet: `
			apiserver_request_total{code="200",verb="GET"} 0+98x120
			apiserver_request_total{code="500",verb="GET"} 0+2x120`,
	},
	"SvcAPIServerSlowWrites": {
		fires: `
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="",le="1"} 0+50x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="",le="2"} 0+100x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="",le="+Inf"} 0+100x120`,
		quiet: `
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="",le="1"} 0+100x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="",le="+Inf"} 0+100x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="exec",le="1"} 0x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="exec",le="60"} 0+100x120
			apiserver_request_sli_duration_seconds_bucket{verb="POST",subresource="exec",le="+Inf"} 0+100x120`,
	},
	"SvcAPIServerSlowReads": {
		fires: `
			apiserver_request_sli_duration_seconds_bucket{verb="LIST",scope="cluster",le="30"} 0x120
			apiserver_request_sli_duration_seconds_bucket{verb="LIST",scope="cluster",le="45"} 0+10x120
			apiserver_request_sli_duration_seconds_bucket{verb="LIST",scope="cluster",le="+Inf"} 0+10x120`,
		quiet: `
			apiserver_request_sli_duration_seconds_bucket{verb="LIST",scope="cluster",le="30"} 0+10x120
			apiserver_request_sli_duration_seconds_bucket{verb="LIST",scope="cluster",le="+Inf"} 0+10x120`,
	},
	"SvcRequestsQueue": {
		fires: `apiserver_flowcontrol_current_inqueue_requests{priority_level="workload-low",flow_schema="service-accounts"} 3x120`,
		quiet: `apiserver_flowcontrol_current_inqueue_requests{priority_level="workload-low",flow_schema="service-accounts"} 0x120`,
	},
	"SvcClientCertificateExpires": {
		fires: `apiserver_client_certificate_expiration_seconds_bucket{le="86400"} 0+1x120`,
		quiet: `
			apiserver_client_certificate_expiration_seconds_bucket{le="86400"} 7x120
			apiserver_client_certificate_expiration_seconds_bucket{le="604800"} 7+1x120`,
	},
	"SvcStorageFillsUp": {
		fires: `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4e9x120`,
		quiet: `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 2e9x120`,
	},
	"SvcStorageSlow": {
		fires: `
			etcd_request_duration_seconds_bucket{operation="create",le="0.5"} 0+1x120
			etcd_request_duration_seconds_bucket{operation="create",le="1"} 0+10x120
			etcd_request_duration_seconds_bucket{operation="create",le="+Inf"} 0+10x120`,
		quiet: `
			etcd_request_duration_seconds_bucket{operation="create",le="0.5"} 0+10x120
			etcd_request_duration_seconds_bucket{operation="create",le="+Inf"} 0+10x120
			etcd_request_duration_seconds_bucket{operation="listWithCount",le="0.5"} 0x120
			etcd_request_duration_seconds_bucket{operation="listWithCount",le="+Inf"} 0+10x120`,
	},
	"SvcServiceAddressesRunOut": {
		fires: `
			kube_apiserver_clusterip_allocator_available_ips{cidr="10.96.0.0/24"} 9x120
			kube_apiserver_clusterip_allocator_allocated_ips{cidr="10.96.0.0/24"} 245x120`,
		quiet: `
			kube_apiserver_clusterip_allocator_available_ips{cidr="10.96.0.0/24"} 200x120
			kube_apiserver_clusterip_allocator_allocated_ips{cidr="10.96.0.0/24"} 54x120`,
	},
	"SvcNoControllersRun": {
		fires: `leader_election_master_status{name="kube-controller-manager"} 0x120`,
		more: []string{
			`up{job="svc"} 0x120`, // no manager runs
			`leader_election_master_status{name="svc-controller-manager"} 0x120`,
			`leader_election_master_status{name="another"} 1x120`,
		},
		quiet: `
			leader_election_master_status{name="svc-controller-manager",instance="a"} 0x120
			leader_election_master_status{name="svc-controller-manager",instance="b"} 1x120`,
		moreQuiet: []string{`leader_election_master_status{name="kube-controller-manager"} 1x120`},
	},
	"SvcWorkQueueStuck": {
		fires: `workqueue_longest_running_processor_seconds{name="deployment"} 0+60x120`,
		quiet: `workqueue_longest_running_processor_seconds{name="deployment"} 2x120`,
	},
	"SvcWorkQueueLong": {
		fires: `workqueue_depth{name="deployment"} 5000x120`,
		quiet: `workqueue_depth{name="deployment"} 20x120`,
	},
	"SvcPodsUnschedulable": {
		fires: `scheduler_pending_pods{queue="unschedulable"} 1x120`,
		quiet: `
			scheduler_pending_pods{queue="unschedulable"} 0x120
			scheduler_pending_pods{queue="gated"} 4x120`,
	},
	"SvcSchedulerErrors": {
		fires: `scheduler_schedule_attempts_total{result="error"} 0+5x120`,
		quiet: `
			scheduler_schedule_attempts_total{result="error"} 3x120
			scheduler_schedule_attempts_total{result="scheduled"} 0+50x120
			scheduler_schedule_attempts_total{result="unschedulable"} 0+5x120`,
	},
}

func TestAlertsFireWithTheirCause(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	file, errs := rulefmt.ParseFile(filepath.Join(component, "alerts.yaml"), false, model.LegacyValidation, p, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			t.Run(rule.Alert, func(t *testing.T) {
				c, ok := alertCases[rule.Alert]
				if !ok {
					t.Fatal("the alert has no case")
				}
				for _, cause := range append([]string{c.fires}, c.more...) {
					if samples(t, rule.Expr, cause) == 0 {
						t.Errorf("it does not fire with %s", cause)
					}
				}
				for _, well := range append([]string{c.quiet}, c.moreQuiet...) {
					if samples(t, rule.Expr, well) != 0 {
						t.Errorf("it fires with %s, while all is well", well)
					}
				}
			})
		}
	}
}

// samples returns how many results a query has after two hours of the series.
func samples(t *testing.T, query, input string) int {
	t.Helper()
	// A blank line would end the command.
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.TrimSpace(input))
	defer func() {
		if err := storage.Close(); err != nil {
			t.Error(err)
		}
	}()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1000)
	q, err := engine.NewInstantQuery(t.Context(), storage, nil, query, time.Unix(0, 0).Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	if len(result.Warnings) > 0 {
		t.Error(result.Warnings)
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(vector)
}
