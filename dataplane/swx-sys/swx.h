/* SPDX-License-Identifier: Apache-2.0 */
/* Headers for bindgen, and two functions of librte_pipeline that DPDK does not publish. Its own code
 * generator uses them. They have the same signature in 22.11 to 25.11, and the static archive, which
 * linkemu links (docs/adr/0034), has them. */
#include <rte_swx_ctl.h>
#include <rte_swx_pipeline.h>
#include <rte_swx_port.h>
#include <rte_swx_table_em.h>
#include <rte_swx_table_wm.h>

struct pipeline_spec;

/* Parses a specification. NULL on error, with the line (from 1) and a static message. */
struct pipeline_spec *pipeline_spec_parse(FILE *spec, uint32_t *err_line, const char **err_msg);

/* Configures a pipeline. Nonzero on error, with a static message. */
int pipeline_spec_configure(struct rte_swx_pipeline *p, struct pipeline_spec *s,
			    const char **err_msg);

void pipeline_spec_free(struct pipeline_spec *s);
