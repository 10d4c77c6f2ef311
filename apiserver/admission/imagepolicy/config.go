package imagepolicy

import (
	"errors"
	"fmt"
	"time"
)

// document is the configuration file. It has no kind.
type document struct {
	ImagePolicy config `json:"imagePolicy"`
}

// config is the configuration. Of its times, 0 is the default, and -1 is none.
type config struct {
	// KubeConfigFile names the backend and how to authenticate to it.
	KubeConfigFile string `json:"kubeConfigFile"`
	// AllowTTL and DenyTTL are for how many seconds an answer is used again; the
	// defaults are 300 and 30.
	AllowTTL int64 `json:"allowTTL"`
	DenyTTL  int64 `json:"denyTTL"`
	// RetryBackoff is the time before the first repetition of a request that failed,
	// in milliseconds; the default is 500.
	RetryBackoff int64 `json:"retryBackoff"`
	// DefaultAllow admits pods if the backend gives no answer.
	DefaultAllow bool `json:"defaultAllow"`
}

// settings are a configuration that is complete and valid.
type settings struct {
	allowTTL, denyTTL, backoff time.Duration
	defaultAllow               bool
}

func (c config) settings() (settings, error) {
	if c.KubeConfigFile == "" {
		return settings{}, errors.New("imagePolicy.kubeConfigFile: name a kubeconfig of the backend")
	}
	s := settings{defaultAllow: c.DefaultAllow}
	for _, d := range []struct {
		name              string
		value             int64
		unit, least, most time.Duration
		defaultValue      time.Duration
		into              *time.Duration
	}{
		{"allowTTL", c.AllowTTL, time.Second, time.Second, 30 * time.Minute, 5 * time.Minute, &s.allowTTL},
		{"denyTTL", c.DenyTTL, time.Second, time.Second, 30 * time.Minute, 30 * time.Second, &s.denyTTL},
		{"retryBackoff", c.RetryBackoff, time.Millisecond, time.Millisecond, 5 * time.Minute, 500 * time.Millisecond, &s.backoff},
	} {
		switch {
		case d.value == 0:
			*d.into = d.defaultValue
		case d.value == -1:
		case d.value < int64(d.least/d.unit) || d.value > int64(d.most/d.unit):
			return s, fmt.Errorf("imagePolicy.%s: valid value is between %v and %v, got %d", d.name, d.least, d.most, d.value)
		default:
			*d.into = time.Duration(d.value) * d.unit
		}
	}
	return s, nil
}
