BEGIN TRANSACTION;
CREATE TABLE allocations (
	allocation_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	tier VARCHAR(16) NOT NULL, 
	instance_type VARCHAR(64) NOT NULL, 
	zone VARCHAR(64) NOT NULL, 
	count INTEGER NOT NULL CHECK (count > 0), 
	bid_micros BIGINT, 
	launched_at_s BIGINT NOT NULL, 
	instance_ids JSON NOT NULL, 
	instance_ends JSON NOT NULL, 
	ended_at_s BIGINT, 
	end_cause VARCHAR(16), 
	order_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (allocation_id), 
	CONSTRAINT an_end_has_a_cause CHECK ((ended_at_s IS NULL) = (end_cause IS NULL)), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	UNIQUE (order_id)
);
INSERT INTO "allocations" VALUES('running-reliable-0','running','reliable','c4.large','us-east-1a',1,NULL,1464912000,'["INSTANCE_0"]','{}',NULL,NULL,'running-reliable-0');
INSERT INTO "allocations" VALUES('running-buy-0','running','transient','c4.large','us-east-1a',2,20100,1464912000,'["INSTANCE_1","INSTANCE_2"]','{}',NULL,NULL,'running-buy-0');
CREATE TABLE claims (
	name VARCHAR(255) NOT NULL, 
	holder VARCHAR(255) NOT NULL, 
	expires_at_s DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE intents (
	order_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	token VARCHAR(64), 
	params JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	planned_at_s DOUBLE NOT NULL, 
	outcome JSON, 
	settled_at_s DOUBLE, 
	PRIMARY KEY (order_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	UNIQUE (token)
);
INSERT INTO "intents" VALUES('running-reliable-0','running','acquire','running-reliable-0','{"market":"c4.large/us-east-1a","count":1,"bid_micros":null}','done',1464912000.0,'{"instances":["INSTANCE_0"]}',1464912000.0);
INSERT INTO "intents" VALUES('running-buy-0','running','acquire','running-buy-0','{"market":"c4.large/us-east-1a","count":2,"bid_micros":20100}','done',1464912000.0,'{"instances":["INSTANCE_1","INSTANCE_2"]}',1464912000.0);
CREATE TABLE jobs (
	job_id VARCHAR(255) NOT NULL, 
	spec JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	created_at_s DOUBLE NOT NULL, 
	ended_at_s DOUBLE, 
	controller_address TEXT, 
	result JSON, 
	failure TEXT, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('running','{"job_id":"running","training":{"app":"mlr","code":"","app_params":{},"data":"digits","partitions":16,"shards":4,"staleness":0,"stage":null,"stage_2_above":1.0,"stage_3_above":15.0,"clocks":3,"hours":null,"checkpoint_minutes":10.0,"evaluate_every":null,"seed":0},"reliable":{"count":1,"instance_type":"c4.large","zone":"us-east-1a"},"transient":{"markets":["c4.large/us-east-1a"],"allocation_vcpus":4,"max_vcpus":4,"policy":"proteus","evictions":"","billing":"hourly-refund","reprice":null,"flat_price":null,"ceiling_on_demand":true,"scaling_efficiency":1.0,"resize_overhead_s":20.0,"eviction_overhead_s":60.0}}','running',1464912000.0,NULL,'tcp://10.0.0.7:38123',NULL,NULL);
CREATE TABLE journal (
	job_id VARCHAR(255) NOT NULL, 
	seq INTEGER NOT NULL, 
	at_s DOUBLE NOT NULL, 
	known_at_s DOUBLE NOT NULL, 
	direction VARCHAR(8) NOT NULL CHECK (direction IN ('event', 'order')), 
	record JSON NOT NULL, 
	PRIMARY KEY (job_id, seq), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
INSERT INTO "journal" VALUES('running',0,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"JobOpened","at_s":1464912000,"job_id":"running","job":{"scaling_efficiency":1.0,"resize_overhead_s":20.0,"eviction_overhead_s":60.0,"allocation_vcpus":4,"max_spot_vcpus":4,"renewal_lead_s":240,"cooldown_s":600,"ceiling_on_demand":true,"reliable_works":true,"billing":"hourly-refund","flat_micros":0},"policy":"proteus","types":{"c4.large":{"name":"c4.large","vcpu":2,"memory_gib":3.75,"on_demand_micros":105000}},"markets":["c4.large/us-east-1a"],"evictions":{"deltas_micros":[100,141,200,282,398,563,795,1124,1587,2243,3169,4477,6325,8935,12624,17836,25198,35601,50297,71061,100396,141841,200396,283122,400000],"markets":{"c4.large/us-east-1a":{"beta":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],"median_tte_s":[3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0,3600.0]}},"bids_decide":true},"foresight":null}');
INSERT INTO "journal" VALUES('running',1,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"AllocationGranted","at_s":1464912000,"order_id":"running-reliable-0","allocation":{"allocation_id":"running-reliable-0","market":"c4.large/us-east-1a","count":1,"launched_at_s":1464912000,"tier":"reliable","bid_micros":null}}');
INSERT INTO "journal" VALUES('running',2,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"TickDue","at_s":1464912000,"prices":{"c4.large/us-east-1a":20000,"m4.large/us-east-1b":30000},"buy":true,"left_out":{},"signals":{}}');
INSERT INTO "journal" VALUES('running',3,1464912000.0,1464912000.0,'order','{"schema":1,"kind":"Acquire","order_id":"running-buy-0","market":"c4.large/us-east-1a","count":2,"bid_micros":20100,"decision":{"verdict":"acquire","reason":"2 x c4.large/us-east-1a at $0.0200, bid $0.0201 (eviction within the hour 0%), brings work from $0.05250/vCPU-h to $0.02430/vCPU-h","cost_per_work":0.0525,"candidates":[{"market":"c4.large/us-east-1a","count":2,"price_micros":20000,"delta_micros":100,"eviction_prob":0.0,"cost_usd":0.145,"work":5.966666666666667,"cost_per_work":0.02430167597765363,"why_not":""}]}}');
INSERT INTO "journal" VALUES('running',4,1464912000.0,1464912000.0,'event','{"schema":1,"kind":"AllocationGranted","at_s":1464912000,"order_id":"running-buy-0","allocation":{"allocation_id":"running-buy-0","market":"c4.large/us-east-1a","count":2,"launched_at_s":1464912000,"tier":"transient","bid_micros":20100}}');
INSERT INTO "journal" VALUES('running',5,1464912120.0,1464912120.0,'event','{"schema":1,"kind":"TickDue","at_s":1464912120,"prices":{"c4.large/us-east-1a":20000,"m4.large/us-east-1b":30000},"buy":true,"left_out":{},"signals":{}}');
INSERT INTO "journal" VALUES('running',6,1464912120.0,1464912120.0,'order','{"schema":1,"kind":"Wait","decision":{"verdict":"wait","reason":"nothing can be bought: all of 4 spot vCPUs are held","cost_per_work":0.024166666666666666,"candidates":[]}}');
INSERT INTO "journal" VALUES('running',7,1464912240.0,1464912240.0,'event','{"schema":1,"kind":"TickDue","at_s":1464912240,"prices":{"c4.large/us-east-1a":20000,"m4.large/us-east-1b":30000},"buy":true,"left_out":{},"signals":{}}');
INSERT INTO "journal" VALUES('running',8,1464912240.0,1464912240.0,'order','{"schema":1,"kind":"Wait","decision":{"verdict":"wait","reason":"nothing can be bought: all of 4 spot vCPUs are held","cost_per_work":0.02416666666666667,"candidates":[]}}');
CREATE TABLE ledger (
	entry_id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	allocation_id VARCHAR(255) NOT NULL, 
	hour_index INTEGER NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	at_s BIGINT NOT NULL, 
	price_micros BIGINT NOT NULL, 
	amount_micros BIGINT NOT NULL, 
	note TEXT NOT NULL, 
	PRIMARY KEY (entry_id), 
	CONSTRAINT signs_of_money CHECK ((kind = 'charge' AND amount_micros >= 0) OR (kind = 'refund' AND amount_micros <= 0)), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id), 
	FOREIGN KEY(allocation_id) REFERENCES allocations (allocation_id)
);
INSERT INTO "ledger" VALUES('running-buy-0/0/charge','running','running-buy-0',0,'charge',1464912000,20000,40000,'spot');
INSERT INTO "ledger" VALUES('running-reliable-0/0/charge','running','running-reliable-0',0,'charge',1464912000,105000,105000,'on demand');
CREATE TABLE observations (
	observation_id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	at_s DOUBLE NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	payload JSON NOT NULL, 
	PRIMARY KEY (observation_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id)
);
CREATE TABLE schema_version (
	one INTEGER NOT NULL CHECK (one = 1), 
	version INTEGER NOT NULL, 
	PRIMARY KEY (one)
);
INSERT INTO "schema_version" VALUES(1,1);
CREATE INDEX ix_intents_job_id ON intents (job_id);
CREATE INDEX ix_allocations_job_id ON allocations (job_id);
CREATE INDEX ix_observations_job_id ON observations (job_id);
CREATE INDEX ix_ledger_job_id ON ledger (job_id);
COMMIT;
